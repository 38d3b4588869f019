/** What a service of a compose file mounts: `[SOURCE:]TARGET[:MODES]`, or the same as an object. */
import type { JsonValue } from "../../lib/json.ts";
import { bytesOf, isSet, recordOf, textOf } from "./compose-values.ts";

export interface ServiceMount {
  /** `bind`, `volume`, `tmpfs` or what else the file says. */
  readonly type: string;
  /** Empty: a volume without a name. */
  readonly source: string;
  readonly target: string;
  readonly readOnly: boolean;
  readonly noCopy: boolean;
  /** Of a file system in memory. */
  readonly sizeBytes: number | undefined;
}

export function readServiceMount(volume: JsonValue): ServiceMount {
  if (typeof volume !== "string") {
    const { type, source, target, read_only: readOnly, volume: own, tmpfs } = recordOf(volume);
    const { size } = recordOf(tmpfs);
    return {
      ...{ type: textOf(type), source: textOf(source), target: textOf(target), readOnly: readOnly === true },
      noCopy: recordOf(own)["nocopy"] === true,
      sizeBytes: isSet(size) ? bytesOf(size) : undefined,
    };
  }
  const [first = "", second, mode = ""] = volume.split(":");
  const [source, target] = second === undefined ? ["", first] : [first, second];
  const modes = mode.split(",");
  return {
    ...{ type: source.startsWith("/") ? "bind" : "volume", source, target },
    readOnly: modes.includes("ro"),
    noCopy: modes.includes("nocopy"),
    sizeBytes: undefined,
  };
}

/** `TARGET[:size=BYTES,…]`, as `tmpfs` of a service says it. */
export function readInMemory(entry: string): { target: string; sizeBytes: number | undefined } {
  const [target = "", words = ""] = entry.split(":");
  const size = /(?:^|,)size=([^,]*)/.exec(words)?.[1];
  return { target, sizeBytes: size === undefined ? undefined : bytesOf(size) };
}
