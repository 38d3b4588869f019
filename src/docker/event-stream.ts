/** The engine's events as they come: JSON objects, one after another. */
import { boundedLines } from "../lib/lines.ts";

/** Something that happened on the engine. */
export interface EngineEvent {
  /** `container`, `image`, `volume`, `network`, and others of the engine's. */
  readonly type: string;
  /** Such as `start`, `die`, `destroy`, `pull`, `health_status: healthy`. */
  readonly action: string;
  /** Id of the container, image or network; name of the volume. */
  readonly id: string;
  /** Such as `name`, `image`, `exitCode`; a container's labels too. */
  readonly attributes: Readonly<Record<string, string>>;
  /** Unix milliseconds. */
  readonly timeMs: number;
}

/**
 * A program that is started in a container is in its events twice, with all of its arguments, and its health is asked for by one:
 * what somebody else wrote may be longer than this, and the events of all others come all the same.
 */
const maxEventLength = 1024 * 1024;

/** Without those that are longer than any that counts. @throws Error when what is read are no events */
export async function* readEvents(chunks: AsyncIterable<Buffer>): AsyncGenerator<EngineEvent, void> {
  const options = { maxLength: maxEventLength, leavesOutLong: true, turn: () => undefined };
  for await (const line of boundedLines(decoded(chunks), options)) {
    const event = line.trim() === "" ? undefined : parseEvent(line);
    if (event !== undefined) yield event;
  }
}

async function* decoded(chunks: AsyncIterable<Buffer>): AsyncGenerator<string, void> {
  const decoder = new TextDecoder();
  for await (const chunk of chunks) yield decoder.decode(chunk, { stream: true });
}

function parseEvent(line: string): EngineEvent | undefined {
  const event = JSON.parse(line) as {
    Type?: string;
    Action?: string;
    Actor?: { ID?: string; Attributes?: Record<string, string> | null };
    timeNano?: number;
    time?: number;
  };
  const { Type: type, Action: action, Actor: actor } = event;
  if (type === undefined || action === undefined) return undefined;
  const timeMs = event.timeNano === undefined ? (event.time ?? 0) * 1_000 : Math.floor(event.timeNano / 1e6);
  return { type, action, id: actor?.ID ?? "", attributes: actor?.Attributes ?? {}, timeMs };
}
