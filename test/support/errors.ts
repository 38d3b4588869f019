/** Errors as a client sees them. */
import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorDetailSchema, type ErrorDetail } from "../../gen/svc/v1/error_pb.ts";

export interface SeenError {
  /** Connect's name of the code, such as `NotFound`. */
  code: string;
  message: string;
  reason: string;
  payload: ErrorDetail["payload"];
}

/** The error of a failed call. @throws Error if it succeeds */
export async function errorOf(call: Promise<unknown> | AsyncIterable<unknown>): Promise<SeenError> {
  try {
    if (Symbol.asyncIterator in call) await Array.fromAsync(call);
    else await call;
  } catch (error) {
    const seen = ConnectError.from(error);
    const [detail] = seen.findDetails(ErrorDetailSchema);
    return {
      code: Code[seen.code],
      message: seen.rawMessage,
      reason: detail?.reason ?? "",
      payload: detail?.payload ?? { case: undefined },
    };
  }
  throw new Error("the call succeeded");
}
