/**
 * Progress of long work: streams that report progress and end with a result, and bytes that pass through this
 * process.
 */
import type { DescMessage, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import type { Progress } from "../../../gen/svc/v1/app_pb.ts";
import type { Operation } from "../../../gen/svc/v1/operation_pb.ts";
import { SvcError } from "../../errors.ts";
import type { CommandContext } from "../context.ts";
import type { LocalFile } from "../input/local-file.ts";
import { AdvisedError, asSvcError } from "./failure.ts";
import { ProgressLine, type ProgressStep } from "./progress.ts";
import type { Method } from "../client/client.ts";
import type { RestShape } from "../client/rest-shape.ts";

/** An event of such a stream: progress, or the result under another name. */
interface ProgressEvent {
  readonly event: { readonly case?: string; readonly value?: unknown };
}

type ResultOf<Message> = Message extends { readonly event: infer Event }
  ? Exclude<Event, { readonly case: "progress" | "detached" | undefined }> extends {
      readonly value: infer Result;
    }
    ? RestShape<Result>
    : never
  : never;

/** Only for text output: scripts that read JSON do not need it. */
export function progressLine({ host, json }: CommandContext, label: string): ProgressLine {
  return new ProgressLine(json ? undefined : host, label);
}

/**
 * Shows progress on stderr, and returns the result as in REST.
 * @param events the method's response stream; default: a call with the request
 */
export async function followProgress<I extends DescMessage, O extends DescMessage>(
  context: CommandContext,
  label: string,
  method: Method<I, O>,
  request: MessageInitShape<I>,
  events: AsyncIterable<MessageShape<O>> = context.invoke(method, [request]),
): Promise<ResultOf<MessageShape<O>>> {
  using line = progressLine(context, label);
  let last: MessageShape<O> | undefined;
  let hasBegun = false;
  try {
    for await (const message of events) {
      hasBegun = true;
      const { event } = message as unknown as ProgressEvent;
      if (event.case === "progress") line.update(progressStep(event.value as Progress));
      else if (event.case !== undefined) last = message;
    }
  } catch (error) {
    throw hasBegun ? explainStop(error, label) : error;
  }
  if (last === undefined) throw new SvcError("internal", `${label}: the daemon gave no result`);
  const { messageToRest } = await import("../client/rest-json.ts");
  const [result] = Object.values(messageToRest(method.output, last) as Readonly<Record<string, unknown>>);
  return result as ResultOf<MessageShape<O>>;
}

/** The daemon undoes or continues the work at its next start. Other errors stay unchanged. */
function explainStop(error: unknown, label: string): unknown {
  const known = asSvcError(error);
  if (known?.code !== "unavailable" || !known.message.includes("the daemon is stopping")) return error;
  const reason = known.message.replace(/; try again(?: in a moment)?/, "");
  return new AdvisedError(
    known,
    `${label} was interrupted: ${reason}; see how it ended when the daemon runs again: svc operations ls`,
  );
}

/** The step that a message of the contract reports. */
export function progressStep(progress: Progress | Operation): ProgressStep {
  const { message, doneBytes, totalBytes, stepNumber, stepCount, service } = progress;
  const counted = (bytes: bigint | undefined): number | undefined =>
    bytes === undefined ? undefined : Number(bytes);
  return {
    step: "step" in progress ? progress.step : progress.phase,
    ...{ message, stepNumber, stepCount, service },
    doneBytes: counted(doneBytes),
    totalBytes: counted(totalBytes),
  };
}

/** A piece of a large download. The first piece has the total size. */
interface Piece {
  readonly content?: { readonly data: Uint8Array } | undefined;
  readonly sizeBytes?: bigint | undefined;
}

/** Shows how many bytes were received. */
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

/** Shows how many bytes were sent, until the daemon has all of them. */
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
