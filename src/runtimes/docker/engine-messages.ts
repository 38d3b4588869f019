/** Parses the engine's progress messages of pulls and builds: consecutive JSON objects. */
import { SvcError } from "../../errors.ts";
import { slicePauses } from "../../lib/slice-pauses.ts";

export interface EngineMessage {
  /** A line of a build, or a part of one. */
  readonly stream?: string;
  /** Status of a pull, with the layer as `id`. */
  readonly status?: string;
  readonly id?: string;
  readonly progressDetail?: { readonly current?: number; readonly total?: number };
  readonly error?: string;
  readonly errorDetail?: { readonly code?: number; readonly message?: string };
  readonly aux?: { readonly ID?: string };
}

const maxMessageLength = 1024 * 1024;

/** In slices: the engine sends the output of a build as fast as its steps write it. */
export async function* readMessages(stream: NodeJS.ReadableStream): AsyncGenerator<EngineMessage, void> {
  let rest = "";
  const pause = slicePauses();
  for await (const chunk of stream.setEncoding("utf8")) {
    const lines = (rest + (chunk as string)).split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > maxMessageLength) {
      throw new SvcError("unavailable", "the progress messages of the container engine are not valid");
    }
    for (const line of lines) {
      await pause();
      if (line.trim() !== "") yield JSON.parse(line) as EngineMessage;
    }
  }
  if (rest.trim() !== "") yield JSON.parse(rest) as EngineMessage;
}
