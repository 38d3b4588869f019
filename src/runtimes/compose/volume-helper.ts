/**
 * Volumes of the engine are read and written through containers that never run: svc itself has no business in directories that
 * containers can change.
 */
import { posix } from "node:path";
import type Dockerode from "dockerode";
import type { Labels } from "../../docker/attribution.ts";

export interface VolumeHelperOptions {
  /** Of the container. */
  name: string;
  labels: Labels;
  /** One that is there; nothing of it is used. */
  image: string;
  /** Each as a directory of that name, at {@link VolumeHelper.directoryOf}. */
  volumes: readonly { readonly volume: string; readonly as: string; readonly readOnly?: boolean }[];
}

export interface VolumeHelper {
  readonly container: Dockerode.Container;
  /** Where it has a volume, under the name by which its archive begins. */
  readonly directoryOf: (index: number) => string;
}

const directoryOf = (index: number): string => `/volumes/${index}`;

/** Does `work` with a container that has these volumes. */
export async function withVolumes<T>(
  docker: Dockerode,
  { name, labels, image, volumes }: VolumeHelperOptions,
  work: (helper: VolumeHelper) => Promise<T>,
): Promise<T> {
  // An earlier one may have been left.
  await docker
    .getContainer(name)
    .remove({ force: true, v: true })
    .catch(() => undefined);
  const container = await docker.createContainer({
    ...{ name, Image: image, Entrypoint: ["/"], Labels: { ...labels }, NetworkDisabled: true },
    HostConfig: {
      Mounts: volumes.map(({ volume, as, readOnly = false }, index) => ({
        ...{
          Type: "volume" as const,
          Source: volume,
          Target: posix.join(directoryOf(index), as),
          ReadOnly: readOnly,
        },
        // Nothing of this image.
        VolumeOptions: { NoCopy: true, Labels: {}, DriverConfig: { Name: "", Options: {} } },
      })),
    },
  });
  try {
    return await work({ container, directoryOf });
  } finally {
    await container.remove({ force: true, v: true });
  }
}
