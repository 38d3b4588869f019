/** The engine's events as they come: JSON objects, one after another. */

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

const maxEventLength = 1024 * 1024;

/** @throws Error when what is read are no events */
export async function* readEvents(chunks: AsyncIterable<Buffer>): AsyncGenerator<EngineEvent, void> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of chunks) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > maxEventLength) throw new Error(`an event of more than ${maxEventLength} characters`);
    for (const line of lines) {
      const event = line.trim() === "" ? undefined : parseEvent(line);
      if (event !== undefined) yield event;
    }
  }
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
