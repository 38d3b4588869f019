/** Parses the engine's progress messages of pulls and builds: consecutive JSON objects. */
import { SvcError } from "../../errors.ts";

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

export async function* readMessages(stream: NodeJS.ReadableStream): AsyncGenerator<EngineMessage, void> {
  let rest = "";
  for await (const chunk of stream.setEncoding("utf8")) {
    const lines = (rest + (chunk as string)).split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > maxMessageLength) {
      throw new SvcError("unavailable", "the progress messages of the container engine are not valid");
    }
    for (const line of lines) {
      if (line.trim() !== "") yield JSON.parse(line) as EngineMessage;
    }
  }
  if (rest.trim() !== "") yield JSON.parse(rest) as EngineMessage;
}
