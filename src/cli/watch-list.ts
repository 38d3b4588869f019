/** A list that is watched: the same command again and again, in its place on a terminal, one below the other elsewhere. */
import { Writable } from "node:stream";
import { Away } from "./away.ts";
import type { CommandContext } from "./context.ts";
import type { OutputStream } from "./host.ts";
import { LiveTable } from "./render/live-table.ts";
import { truncate } from "./render/width.ts";

const watchMs = 2_000;

export async function watch(
  context: CommandContext,
  look: (once: CommandContext) => Promise<void>,
): Promise<void> {
  const { stdout } = context.host;
  const inPlace = stdout.isTTY === true && !context.json;
  const live = new LiveTable(inPlace);
  /** What was shown last; none before the first answer. */
  let shown: string | undefined;
  const away = new Away(context);
  for (;;) {
    const [text, notes] = [new Taken(stdout), new Taken(stdout)];
    try {
      await look(context.writingTo(text.stream, notes.stream));
      away.end();
      // What is said beside a list moves with it, and is said once elsewhere.
      if (!inPlace && shown === undefined && notes.text !== "") context.host.stderr.write(notes.text);
      shown = inPlace ? text.text + cut(notes.text, stdout.columns) : text.text;
      await context.print(context.json ? oneLine(shown) : live.next(shown));
    } catch (error) {
      // A daemon that is restarted is there again soon. One that never answered is told at once.
      const last = shown;
      if (last === undefined) throw error;
      const inItsPlace = (line: string): Promise<void> => context.print(live.next(`${last}${line}\n`));
      await (inPlace ? away.wait(error, inItsPlace) : away.wait(error));
      continue;
    }
    await context.pause(watchMs);
  }
}

/** A stream that looks like another one, and keeps what is written. */
class Taken {
  text = "";
  readonly stream: OutputStream;

  constructor({ isTTY = false, columns }: OutputStream) {
    const sink = new Writable({
      decodeStrings: false,
      write: (part: string | Buffer, _encoding, done) => {
        this.text += part.toString();
        done();
      },
    });
    this.stream = Object.assign(sink, { isTTY, ...(columns !== undefined && { columns }) });
  }
}

/** So that each line takes one of the terminal's. */
function cut(text: string, columns = 80): string {
  return text.replaceAll(/[^\n]+/g, (line) => truncate(line, columns));
}

/** No text in JSON has a line feed of its own. */
function oneLine(json: string): string {
  return `${json.trimEnd().replaceAll(/\n */g, "")}\n`;
}
