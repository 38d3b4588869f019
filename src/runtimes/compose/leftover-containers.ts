/** Finds containers that an interrupted upgrade left: compose had replaced them before the rollback. */
import type { ContainerRecord } from "../../engine/container-record.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { anonymousVolumesOf } from "./anonymous-volumes.ts";
import { settingsDigest, settingsLabel } from "../settings-digest.ts";

/**
 * Whether a container is of another version than those that the app was started with, or would be now. False for
 * containers with an anonymous volume: compose passes it on from container to container, so no other container may
 * have it.
 */
export function isLeftoverOf(app: RunnableApp): (container: ContainerRecord) => boolean {
  const own = [app.settings, app.startedSettings ?? app.settings].map((values) =>
    settingsDigest(app, values),
  );
  return (container) => {
    const digest = container.labels[settingsLabel];
    return digest !== undefined && !own.includes(digest) && anonymousVolumesOf([container]).length === 0;
  };
}
