/** Containers that an upgrade leaves that comes to no end: compose had exchanged them, and the app went back. */
import type { ContainerRecord } from "../../docker/container-record.ts";
import type { RunnableApp } from "../runtime.ts";
import { settingsDigest, settingsLabel } from "../settings-digest.ts";

/** A volume that nobody gave a name. */
const anonymous = /^[0-9a-f]{64}$/;

/**
 * Tells those of another version from those that the app was started with, or would be now. One with a volume without a name
 * is never among them: compose hands that on from a container to the next one, and no other container may have it.
 */
export function givenUpBy(app: RunnableApp): (container: ContainerRecord) => boolean {
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
