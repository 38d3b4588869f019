/** Streams that report progress and end with a result: install, upgrade, clone. */
import type { Progress } from "../../gen/svc/v1/app_pb.ts";
import { SvcError } from "../errors.ts";
import type { CommandContext } from "./context.ts";
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

/**
 * Shows the progress on stderr and answers with the result. A script that reads JSON from a pipe sees no progress.
 * @param resultCase name of the event that carries the result
 */
export async function followProgress<Event extends ProgressEvent, Case extends string>(
  context: CommandContext,
  label: string,
  events: AsyncIterable<Event>,
  resultCase: Case,
): Promise<ValueOf<Event, Case>> {
  const { stderr } = context.host;
  const shown = !context.json || stderr.isTTY === true;
  const line = new ProgressLine(stderr, label);
  let result: ValueOf<Event, Case> | undefined;
  try {
    for await (const { event } of events) {
      if (event.case === resultCase) {
        result = event.value;
      } else if (event.case === "progress" && shown) {
        const { step, message, doneBytes, totalBytes } = event.value as Progress;
        line.update({
          step,
          message,
          doneBytes: doneBytes === undefined ? undefined : Number(doneBytes),
          totalBytes: totalBytes === undefined ? undefined : Number(totalBytes),
        });
      }
    }
  } finally {
    line.clear();
  }
  if (result === undefined) throw new SvcError("internal", `${label}: the daemon gave no result`);
  return result;
}
