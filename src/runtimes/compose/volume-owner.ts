/**
 * Engine volumes initially belong to root, or have the owners of the image's content. Users' containers run as their
 * owner, who could write to neither: svc changes the owner of new volumes before they are used.
 */
import { posix } from "node:path";
import { Readable } from "node:stream";
import type Dockerode from "dockerode";
import type { ContainerInfo } from "dockerode";
import type { DockerEngine } from "../../engine/engine.ts";
import type { Labels } from "../../engine/attribution.ts";
import { tarOwnedBy, type TarOwner } from "../../lib/tar-owner.ts";
import { withVolumes } from "./volume-helper.ts";

export interface VolumeOwnerOptions {
  engine: DockerEngine;
  /** Completes "the container engine could not". */
  what: string;
  /** Created, and not started. */
  containers: readonly ContainerInfo[];
  owner: TarOwner;
  /** Name of the helper container. */
  name: string;
  labels: Labels;
}

/** A volume and its path in a container. */
interface MountedVolume {
  readonly name: string;
  readonly container: string;
  readonly path: string;
}

const timeoutMs = 300_000;

/**
 * Changes the owner of the containers' volumes, with the image's content in them, unless they have the right owner.
 */
export async function changeVolumeOwner(options: VolumeOwnerOptions): Promise<void> {
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
            await changeOwner(docker, volume, owner, { helper: container, directory: directoryOf(index) });
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

/**
 * The archive comes from another container than the helper, because the engine does one operation at a time per
 * container.
 */
async function changeOwner(
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
