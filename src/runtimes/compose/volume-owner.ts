/**
 * Volumes of the engine begin as root's, or as the image has what it keeps there. Containers of users run as their owner,
 * who could write to neither: what is new is handed over before it is used.
 */
import { posix } from "node:path";
import { Readable } from "node:stream";
import type Dockerode from "dockerode";
import type { ContainerInfo } from "dockerode";
import type { DockerEngine } from "../../docker/engine.ts";
import type { Labels } from "../../docker/attribution.ts";
import { tarOwnedBy, type TarOwner } from "../../lib/tar-owner.ts";
import { withVolumes } from "./volume-helper.ts";

export interface HandOverOptions {
  engine: DockerEngine;
  /** Goes on after "the container engine could not". */
  what: string;
  /** Made, and not started. */
  containers: readonly ContainerInfo[];
  owner: TarOwner;
  /** Of the container that it is done in. */
  name: string;
  labels: Labels;
}

/** A volume, and where a container has it. */
interface MountedVolume {
  readonly name: string;
  readonly container: string;
  readonly path: string;
}

const timeoutMs = 300_000;

/** Gives those volumes of the containers that are not their owner's to the owner, with what the image has put there. */
export async function handVolumesOver(options: HandOverOptions): Promise<void> {
  const { engine, what, containers, owner, name, labels } = options;
  const volumes = mountedVolumes(containers);
  const [{ ImageID: image } = { ImageID: "" }] = containers;
  if (volumes.length === 0) return;
  await engine.operate(
    what,
    (docker) =>
      withVolumes(
        docker,
        {
          ...{ name, labels, image },
          volumes: volumes.map((volume) => ({ volume: volume.name, as: posix.basename(volume.path) })),
        },
        async ({ container, directoryOf }) => {
          for (const [index, volume] of volumes.entries()) {
            await handOver(docker, volume, owner, { helper: container, directory: directoryOf(index) });
          }
        },
      ),
    { timeoutMs },
  );
}

function mountedVolumes(containers: readonly ContainerInfo[]): MountedVolume[] {
  const volumes = new Map<string, MountedVolume>();
  for (const { Id, Mounts } of containers) {
    for (const { Type, Name: name, Destination: path } of Mounts) {
      if (Type === "volume" && name !== undefined) volumes.set(name, { name, container: Id, path });
    }
  }
  return [...volumes.values()];
}

/** The archive comes from another container than the helper: the engine does one thing at a time with each. */
async function handOver(
  docker: Dockerode,
  { container, path }: MountedVolume,
  owner: TarOwner,
  { helper, directory }: { helper: Dockerode.Container; directory: string },
): Promise<void> {
  const archive = await docker.getContainer(container).getArchive({ path });
  const owned = tarOwnedBy(archive as AsyncIterable<Buffer>, owner);
  const first = await owned.next();
  if (first.done) return;
  const parts = async function* (): AsyncGenerator<Buffer, void> {
    yield first.value;
    yield* owned;
  };
  await helper.putArchive(Readable.from(parts(), { objectMode: false }), { path: directory });
}
