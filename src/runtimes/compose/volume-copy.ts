/** Copies the volumes of a project for a copy of the app, with contents and owners unchanged. */
import { Readable } from "node:stream";
import type Dockerode from "dockerode";
import type { VolumeInspectInfo } from "dockerode";
import { composeProjectLabel, composeVolumeLabel } from "../../engine/attribution.ts";
import type { DockerEngine } from "../../engine/engine.ts";
import type { EngineOwnership } from "../../engine/ownership.ts";
import type { RuntimeWork } from "../capabilities.ts";
import { withEmptyImage } from "./empty-image.ts";
import { withVolumes } from "./volume-helper.ts";

export interface VolumeCopyOptions extends RuntimeWork {
  engine: DockerEngine;
  ownership: EngineOwnership;
  /** Volumes of the original. */
  volumes: readonly VolumeInspectInfo[];
  /** ID of the copy. */
  appId: string;
}

const timeoutMs = 6 * 3_600_000;
const progressEveryBytes = 16 * 1024 * 1024;
/** Not copied, because compose would consider the volume changed. */
const configHashLabel = "com.docker.compose.config-hash";
const volumeAs = "volume";

/**
 * Whether a copy of the app gets its own copy: not if a driver stores the volume elsewhere, or the file sets its
 * name.
 */
export function isCopied(volume: VolumeInspectInfo, project: string): boolean {
  const { Driver: driver, Name: name, Options: options, Labels: labels } = volume;
  // Engines return `null` for an empty list, unlike the client's type.
  const isPlain = driver === "local" && Object.keys((options as object | null) ?? {}).length === 0;
  return isPlain && name === `${project}_${labels[composeVolumeLabel] ?? ""}`;
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
  const pairs = volumes.map(({ Name: from, Labels: known }) => {
    const { [configHashLabel]: _, ...labels } = known;
    const key = labels[composeVolumeLabel] ?? from;
    return {
      from,
      key,
      to: `${project}_${key}`,
      labels: { ...labels, [composeProjectLabel]: project, ...own },
    };
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
