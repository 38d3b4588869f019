/**
 * `--watch` for a list: repeats the command and shows its output in place on a terminal, one below the other
 * elsewhere.
 */
import { Writable } from "node:stream";
import { LostConnection } from "../logs/outage.ts";
import type { CommandContext } from "../context.ts";
import type { OutputStream } from "../host.ts";
import { LiveTable } from "./live-table.ts";
import { truncate } from "./width.ts";

const watchMs = 2_000;

export async function watch(
  context: CommandContext,
  printList: (once: CommandContext) => Promise<void>,
): Promise<void> {
  const { stdout } = context.host;
  const inPlace = stdout.isTTY === true && !context.json;
  const live = new LiveTable(inPlace);
  /** The last output; undefined before the first response. */
  let shown: string | undefined;
  const outage = new LostConnection(context);
  for (;;) {
    const [text, notes] = [new CapturedOutput(stdout), new CapturedOutput(stdout)];
    try {
      await printList(context.writingTo(text.stream, notes.stream));
      outage.end();
      // Notes are redrawn with the list on a terminal, and printed once elsewhere.
      if (!inPlace && shown === undefined && notes.text !== "") context.host.stderr.write(notes.text);
      shown = inPlace ? text.text + cut(notes.text, stdout.columns) : text.text;
      await context.print(
        context.json ? (context.options.json === true ? oneLine(shown) : shown) : live.next(shown),
      );
    } catch (error) {
      // A restarting daemon is back soon. A daemon that never responded is an error at once.
      const last = shown;
      if (last === undefined) throw error;
      const inItsPlace = (line: string): Promise<void> => context.print(live.next(`${last}${line}\n`));
      await (inPlace ? outage.wait(error, inItsPlace) : outage.wait(error));
      continue;
    }
    await context.pause(watchMs);
  }
}

/** Captures output: a stream with the properties of another one. */
class CapturedOutput {
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

/** Cuts each line to the width of the terminal, so that it takes one row. */
function cut(text: string, columns = 80): string {
  return text.replaceAll(/[^\n]+/g, (line) => truncate(line, columns));
}

/** JSON strings contain no line feeds. */
function oneLine(json: string): string {
  return `${json.trimEnd().replaceAll(/\n */g, "")}\n`;
}
