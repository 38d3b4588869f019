/** Finds containers that an interrupted upgrade left: compose had replaced them before the rollback. */
import type { ContainerRecord } from "../../engine/container-record.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { settingsDigest, settingsLabel } from "../settings-digest.ts";

/** Name of an anonymous volume. */
const anonymous = /^[0-9a-f]{64}$/;

/**
 * Whether a container is of another version than those that the app was started with, or would be now. False for
 * containers with an anonymous volume: compose passes it on from container to container, so no other container may
 * have it.
 */
export function isLeftoverOf(app: RunnableApp): (container: ContainerRecord) => boolean {
  const own = [app.settings, app.startedSettings ?? app.settings].map((values) =>
    settingsDigest(app, values),
  );
  return ({ labels, mounts }) => {
    const digest = labels[settingsLabel];
    return (
      digest !== undefined && !own.includes(digest) && !mounts.some(({ name = "" }) => anonymous.test(name))
    );
  };
}
