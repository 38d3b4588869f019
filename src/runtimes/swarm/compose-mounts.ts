/** Plans the mounts of a compose service on a swarm. */
import { SvcError } from "../../errors.ts";
import type { JsonObject } from "../../lib/json.ts";
import { bytesOf, isSet, listOf, textsOf } from "../compose/compose-values.ts";
import { readInMemory, readServiceMount } from "../compose/service-mounts.ts";
import type { RunnableApp } from "../runnable-app.ts";

export interface VolumePlan {
  /** Name on the engine. */
  readonly name: string;
  readonly driver: string;
  readonly options: Readonly<Record<string, string>>;
  readonly labels: Readonly<Record<string, string>>;
  /** Whether the volume exists on only one node. */
  readonly isLocal: boolean;
}

/** Whether the service mounts data that only one node has. */
export function keepsData(service: JsonObject, volumes: ReadonlyMap<string, VolumePlan>): boolean {
  return listOf(service["volumes"]).some((volume) => {
    const { type, source } = readServiceMount(volume);
    return type === "bind" || (type === "volume" && volumes.get(source)?.isLocal !== false);
  });
}

export interface PlannedMount {
  readonly mount: object;
  /** Whether it exists only on this host. */
  readonly isLocal: boolean;
  /** Whether two tasks at a time could corrupt its data. */
  readonly isData: boolean;
}

/** A mount that belongs to one task. */
function ofTask(mount: object): PlannedMount {
  return { mount, isLocal: false, isData: false };
}

function inMemory(Target: string, SizeBytes: number | undefined): PlannedMount {
  return ofTask({ Type: "tmpfs", Target, TmpfsOptions: { SizeBytes } });
}

export function mountsOf(
  app: RunnableApp,
  key: string,
  service: JsonObject,
  volumes: ReadonlyMap<string, VolumePlan>,
): PlannedMount[] {
  const mounts = listOf(service["volumes"]).map((volume): PlannedMount => {
    const { type, source, target: Target, readOnly: ReadOnly, noCopy, sizeBytes } = readServiceMount(volume);
    switch (type) {
      case "tmpfs":
        return inMemory(Target, sizeBytes);
      case "bind": {
        const BindOptions = { Propagation: "rprivate" };
        const mount = { Type: type, Source: source, Target, ReadOnly, BindOptions };
        return { mount, isLocal: true, isData: !ReadOnly };
      }
      case "volume": {
        // A volume without a name.
        if (source === "") return ofTask({ Type: type, Target });
        const found = volumes.get(source);
        const VolumeOptions = {
          NoCopy: noCopy,
          Labels: found?.labels,
          DriverConfig: { Name: found?.driver || "local", Options: found?.options },
        };
        const mount = { Type: type, Source: found?.name ?? source, Target, ReadOnly, VolumeOptions };
        return { mount, isLocal: found?.isLocal !== false, isData: !ReadOnly };
      }
      default:
        throw new SvcError(
          "not_possible",
          `service "${key}" of app "${app.id}" mounts "${source}" as ${type}, which svc does not support for services on a swarm`,
        );
    }
  });
  return [
    ...textsOf(service["tmpfs"])
      .map(readInMemory)
      .map(({ target, sizeBytes }) => inMemory(target, sizeBytes)),
    ...(isSet(service["shm_size"]) ? [inMemory("/dev/shm", bytesOf(service["shm_size"]))] : []),
    ...mounts,
  ];
}
