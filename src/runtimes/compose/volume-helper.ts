/**
 * Reads and writes engine volumes through containers that never run, because svc must not access directories that
 * containers can change.
 */
import { posix } from "node:path";
import type Dockerode from "dockerode";
import { blankedLabels, type Labels } from "../../engine/attribution.ts";

export interface VolumeHelperOptions {
  /** Name of the container. */
  name: string;
  labels: Labels;
  /** An existing image; its content is not used. */
  image: string;
  /** Each volume is mounted as a directory named `as` in {@link VolumeHelper.directoryOf}. */
  volumes: readonly { readonly volume: string; readonly as: string; readonly readOnly?: boolean }[];
}

export interface VolumeHelper {
  readonly container: Dockerode.Container;
  /** Directory in the container that contains the mounted volume. */
  readonly directoryOf: (index: number) => string;
}

const directoryOf = (index: number): string => `/volumes/${index}`;

/** Calls `work` with a container that mounts these volumes. */
export async function withVolumes<T>(
  docker: Dockerode,
  { name, labels, image, volumes }: VolumeHelperOptions,
  work: (helper: VolumeHelper) => Promise<T>,
): Promise<T> {
  // An earlier helper may have been left behind.
  await docker
    .getContainer(name)
    .remove({ force: true, v: true })
    .catch(() => undefined);
  const { Config: config } = (await docker.getImage(image).inspect()) as {
    Config?: { Labels?: Labels | null } | null;
  };
  const container = await docker.createContainer({
    ...{ name, Image: image, Entrypoint: ["/"], NetworkDisabled: true },
    Labels: { ...blankedLabels(config?.Labels), ...labels },
    HostConfig: {
      Mounts: volumes.map(({ volume, as, readOnly = false }, index) => ({
        ...{
          Type: "volume" as const,
          Source: volume,
          Target: posix.join(directoryOf(index), as),
          ReadOnly: readOnly,
        },
        // Do not copy content of the image.
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
