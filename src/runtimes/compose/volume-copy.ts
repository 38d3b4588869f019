/** The volumes of a project for a copy of it, bytes and owners as they are. */
import { Readable } from "node:stream";
import type Dockerode from "dockerode";
import type { VolumeInspectInfo } from "dockerode";
import {
  appLabels,
  composeProjectLabel,
  composeProjectOf,
  composeVolumeLabel,
} from "../../docker/attribution.ts";
import type { DockerEngine } from "../../docker/engine.ts";
import type { RuntimeWork } from "../runtime.ts";
import { withEmptyImage } from "./empty-image.ts";
import { withVolumes } from "./volume-helper.ts";

export interface VolumeCopyOptions extends RuntimeWork {
  engine: DockerEngine;
  storeId: string;
  /** Of the original. */
  volumes: readonly VolumeInspectInfo[];
  /** Id of the copy. */
  appId: string;
}

const timeoutMs = 6 * 3_600_000;
const progressEveryBytes = 16 * 1024 * 1024;
/** Of another project's description: compose would find that it has changed. */
const configHashLabel = "com.docker.compose.config-hash";
const volumeAs = "volume";

/**
 * Whether a copy of the app has another one of it: not where a driver keeps it elsewhere, or the file gives it a name of its
 * own.
 */
export function isCopied(volume: VolumeInspectInfo, appId: string): boolean {
  const { Driver: driver, Name: name, Options: options, Labels: labels } = volume;
  // Engines answer `null` where there are none, whatever their client's types promise.
  const isPlain = driver === "local" && Object.keys((options as object | null) ?? {}).length === 0;
  return isPlain && name === `${composeProjectOf(appId)}_${labels[composeVolumeLabel] ?? ""}`;
}

/** Makes the volumes of a copy, which has none; resolves with the bytes of their archives. */
export async function copyVolumes(options: VolumeCopyOptions): Promise<number> {
  const { engine, appId, signal } = options;
  return engine.operate(
    `copy the volumes for app "${appId}"`,
    (docker) => withEmptyImage(docker, (image) => copyAll(docker, image, options)),
    { timeoutMs, signal },
  );
}

async function copyAll(docker: Dockerode, image: string, options: VolumeCopyOptions): Promise<number> {
  const { storeId, volumes, appId, onProgress } = options;
  const project = composeProjectOf(appId);
  const labels = appLabels(appId, storeId);
  const pairs = volumes.map(({ Name: from, Labels: known }) => {
    const { [configHashLabel]: _, ...kept } = known;
    const key = kept[composeVolumeLabel] ?? from;
    return {
      from,
      key,
      to: `${project}_${key}`,
      labels: { ...kept, [composeProjectLabel]: project, ...labels },
    };
  });
  for (const pair of pairs) {
    await docker.createVolume({ Name: pair.to, Driver: "local", Labels: pair.labels });
  }
  const helper = (kind: "from" | "to") => ({
    ...{ name: `${project}-volumes-${kind}`, labels, image },
    volumes: pairs.map((pair) => ({ volume: pair[kind], as: volumeAs, readOnly: kind === "from" })),
  });
  let doneBytes = 0;
  // Two, as the engine does one thing at a time with each.
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
