/** Parses the engine's event stream: consecutive JSON objects. */
import { boundedLines } from "../lib/lines.ts";

/** An event of the engine. */
export interface EngineEvent {
  /** `container`, `image`, `volume`, `network` or another type of the engine. */
  readonly type: string;
  /** Such as `start`, `die`, `destroy`, `pull`, `health_status: healthy`. */
  readonly action: string;
  /** ID of the container, image or network; name of the volume. */
  readonly id: string;
  /** Such as `name`, `image`, `exitCode`; for containers also their labels. */
  readonly attributes: Readonly<Record<string, string>>;
  /** Unix milliseconds. */
  readonly timeMs: number;
}

/**
 * Longer events are skipped. A command in a container, such as a health check, causes two events with all its
 * arguments: a long one must not stop the events of other containers.
 */
const maxEventLength = 1024 * 1024;

/** Yields the events, without overlong ones. @throws Error when the data is not an event stream */
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
