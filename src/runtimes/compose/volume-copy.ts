/** Copies the volumes of a project for a copy of the app, with contents and owners unchanged. */
import { Readable } from "node:stream";
import type Dockerode from "dockerode";
import type { VolumeInspectInfo } from "dockerode";
import { composeProjectLabel, composeVolumeLabel, type Labels } from "../../engine/attribution.ts";
import type { DockerEngine } from "../../engine/engine.ts";
import type { EngineOwnership } from "../../engine/ownership.ts";
import type { RuntimeWork } from "../capabilities.ts";
import { withEmptyImage } from "./empty-image.ts";
import { withVolumes } from "./volume-helper.ts";

export interface VolumeCopyOptions extends RuntimeWork {
  engine: DockerEngine;
  ownership: EngineOwnership;
  /** Volumes of the original, each with its key in the compose file. */
  volumes: readonly (VolumeInspectInfo & { readonly key: string })[];
  /** ID of the copy. */
  appId: string;
}

const timeoutMs = 6 * 3_600_000;
const progressEveryBytes = 16 * 1024 * 1024;
/** Not copied, because compose would consider the volume changed. */
const configHashLabel = "com.docker.compose.config-hash";
const volumeAs = "volume";

/** Whether the engine stores the volume itself: a driver or its options may store it elsewhere. */
export function isPlain({ Driver: driver, Options: options }: VolumeInspectInfo): boolean {
  // Engines return `null` for an empty list, unlike the client's type.
  return driver === "local" && Object.keys((options as object | null) ?? {}).length === 0;
}

/** Creates the volumes of the copy; resolves to the size of their archives in bytes. */
export async function copyVolumes(options: VolumeCopyOptions): Promise<number> {
  const { engine, appId, signal } = options;
  return engine.operate(
    `copy the volumes for app "${appId}"`,
    (docker) => withEmptyImage(docker, (image) => copyAll(docker, image, options)),
    { timeoutMs, signal },
  );
}

async function copyAll(docker: Dockerode, image: string, options: VolumeCopyOptions): Promise<number> {
  const { ownership, volumes, appId, onProgress } = options;
  const project = ownership.projectOf(appId);
  const own = ownership.labels("volume", appId);
  const pairs = volumes.map(({ Name: from, Labels: known, key }) => {
    // A volume without labels has null there, unlike the client's type.
    const { [configHashLabel]: _, ...labels } = (known as Labels | null) ?? {};
    const compose = { [composeProjectLabel]: project, [composeVolumeLabel]: key };
    return { from, key, to: `${project}_${key}`, labels: { ...labels, ...compose, ...own } };
  });
  for (const pair of pairs) {
    await docker.createVolume({ Name: pair.to, Driver: "local", Labels: pair.labels });
  }
  const helper = (kind: "from" | "to") => ({
    ...{ name: `${project}-volumes-${kind}`, labels: ownership.labels("container", appId), image },
    volumes: pairs.map((pair) => ({ volume: pair[kind], as: volumeAs, readOnly: kind === "from" })),
  });
  let doneBytes = 0;
  // Two containers, because the engine does one operation at a time per container.
  await withVolumes(docker, helper("from"), (source) =>
    withVolumes(docker, helper("to"), async (target) => {
      for (const [index, { key }] of pairs.entries()) {
        const path = `${source.directoryOf(index)}/${volumeAs}`;
        const archive = (await source.container.getArchive({ path })) as AsyncIterable<Buffer>;
        const counted = async function* (): AsyncGenerator<Buffer, void> {
          let saidBytes = -progressEveryBytes;
          for await (const chunk of archive) {
            doneBytes += chunk.length;
            if (doneBytes - saidBytes >= progressEveryBytes) {
              saidBytes = doneBytes;
              const message = `Copying the volume ${key}`;
              onProgress?.({ step: "copy", message, doneBytes: BigInt(doneBytes) });
            }
            yield chunk;
          }
        };
        await target.container.putArchive(Readable.from(counted(), { objectMode: false }), {
          path: target.directoryOf(index),
        });
      }
    }),
  );
  return doneBytes;
}
