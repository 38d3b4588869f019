/** The progress of long work: of streams that report it and end with a result, and of bytes that go through this process. */
import type { Progress } from "../../gen/svc/v1/app_pb.ts";
import { SvcError } from "../errors.ts";
import type { CommandContext } from "./context.ts";
import type { LocalFile } from "./local-file.ts";
import { ProgressLine } from "./render/progress.ts";

/** An event of such a stream: progress, or under another name the result. */
interface ProgressEvent {
  readonly event: { readonly case: string; readonly value: unknown } | { readonly case: undefined };
}

/** The type of the value that a case of the event's oneof carries. */
type ValueOf<Event extends ProgressEvent, Case extends string> = Extract<
  Event["event"],
  { readonly case: Case; readonly value: unknown }
>["value"];

/** For people who wait: a script that reads JSON sees nothing of it. */
export function progressLine({ host, json }: CommandContext, label: string): ProgressLine {
  return new ProgressLine(json ? undefined : host, label);
}

/**
 * Shows the progress on stderr and answers with the result.
 * @param resultCase name of the event that carries the result
 */
export async function followProgress<Event extends ProgressEvent, Case extends string>(
  context: CommandContext,
  label: string,
  events: AsyncIterable<Event>,
  resultCase: Case,
): Promise<ValueOf<Event, Case>> {
  using line = progressLine(context, label);
  let result: ValueOf<Event, Case> | undefined;
  for await (const { event } of events) {
    if (event.case === resultCase) {
      result = event.value;
    } else if (event.case === "progress") {
      const { step, message, doneBytes, totalBytes } = event.value as Progress;
      line.update({
        step,
        message,
        doneBytes: doneBytes === undefined ? undefined : Number(doneBytes),
        totalBytes: totalBytes === undefined ? undefined : Number(totalBytes),
      });
    }
  }
  if (result === undefined) throw new SvcError("internal", `${label}: the daemon gave no result`);
  return result;
}

/** A piece of something long, as the daemon sends it; the first says how long it is. */
interface Piece {
  readonly content?: { readonly data: Uint8Array } | undefined;
  readonly sizeBytes?: bigint | undefined;
}

/** Shows how much has come. */
export async function* receiveBytes(
  line: ProgressLine,
  pieces: AsyncIterable<Piece>,
): AsyncGenerator<Uint8Array> {
  let doneBytes = 0;
  let totalBytes: number | undefined;
  for await (const { content, sizeBytes } of pieces) {
    if (sizeBytes !== undefined) totalBytes = Number(sizeBytes);
    if (content === undefined || content.data.length === 0) continue;
    yield content.data;
    doneBytes += content.data.length;
    line.update({ step: "receive", message: "", doneBytes, totalBytes });
  }
}

/** Shows how much has gone, until the daemon has all of it. */
export async function* sendBytes(
  line: ProgressLine,
  { bytes, sizeBytes }: LocalFile,
): AsyncGenerator<Uint8Array> {
  let doneBytes = 0;
  for await (const data of bytes as AsyncIterable<Buffer>) {
    yield data;
    doneBytes += data.length;
    line.update({ step: "send", message: "", doneBytes, totalBytes: sizeBytes });
  }
  line.clear();
}
