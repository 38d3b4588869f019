/** The daemon's clients with the credentials of the page, and their errors as text for a person. */
import type { DescService } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient, type Client, type Interceptor } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { ErrorDetailSchema, type ErrorDetail } from "../../gen/svc/v1/error_pb.ts";
import { EventService } from "../../gen/svc/v1/event_pb.ts";
import { MonitorService } from "../../gen/svc/v1/monitor_pb.ts";
import { SessionService } from "../../gen/svc/v1/session_pb.ts";
import { keepAliveHeader, withoutKeepAlives } from "../lib/keep-alive.ts";
import { sentence } from "./plain-text.ts";
import { texts } from "./texts.ts";
import { UserFacingError } from "./user-facing-error.ts";
import { createUpload, type Upload } from "./upload.ts";

const againMs = 300;

export interface Api {
  readonly apps: Client<typeof AppService>;
  readonly daemon: Client<typeof DaemonService>;
  readonly events: Client<typeof EventService>;
  readonly monitor: Client<typeof MonitorService>;
  readonly sessions: Client<typeof SessionService>;
  /** For services that only lazily loaded parts use. */
  readonly client: <S extends DescService>(service: S) => Client<S>;
  readonly upload: Upload;
  /** Cancels current reads: hanging reads would occupy the browser's few connections forever. */
  readonly dropReads: () => void;
  /** Reports that a connection broke, or ended: another program may listen on the daemon's port now. */
  readonly loseConnection: () => void;
}

/**
 * @param authorization the value of the header; never part of an address
 * @param onLost for a credential that must not reach another program: called once, at the first broken connection or request without
 *   a response of the daemon. The credential is never sent again, neither are reads.
 */
export function createApi(authorization: string, onLost?: () => void): Api {
  let reads = new AbortController();
  let isLost = false;
  const dropReads = (): void => {
    reads.abort(new TypeError("the daemon does not respond"));
    reads = new AbortController();
  };
  const loseConnection = (): void => {
    if (isLost || onLost === undefined) return;
    isLost = true;
    dropReads();
    onLost();
  };
  const credential = (): string => {
    if (isLost) throw new UserFacingError(texts.signIn.lost);
    return authorization;
  };
  const authorize: Interceptor = (next) => (request) => {
    request.header.set("authorization", credential());
    return next(request);
  };
  const keepAlive: Interceptor = (next) => async (request) => {
    if (!request.stream) return next(request);
    request.header.set(keepAliveHeader, "1");
    const response = await next(request);
    if (!response.stream) return response;
    return { ...response, message: withoutKeepAlives(response.method.output, response.message) };
  };
  const watchConnection: Interceptor = (next) => async (request) => {
    const check = (error: unknown): void => {
      if (!request.signal.aborted && !isDaemonError(error)) loseConnection();
    };
    try {
      const response = await next(request);
      return response.stream ? { ...response, message: checkedStream(response.message, check) } : response;
    } catch (error) {
      check(error);
      throw error;
    }
  };
  /**
   * A network change, such as a new container, breaks calls that have not reached the daemon. Reads are
   * repeated once. Changes are not, because their outcome is unknown.
   */
  const readAgain: Interceptor = (next) => async (request) => {
    if (request.stream) return next(request);
    const isRead = request.method.idempotency === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS;
    const once = (): ReturnType<typeof next> =>
      next(isRead ? { ...request, signal: AbortSignal.any([request.signal, reads.signal]) } : request);
    try {
      return await once();
    } catch (error) {
      if (request.signal.aborted || isDaemonError(error) || isLost) throw error;
      if (!isRead) throw new UserFacingError(texts.unanswered, { cause: error });
      await new Promise((resolve) => setTimeout(resolve, againMs));
      return once();
    }
  };
  const transport = createConnectTransport({
    baseUrl: location.origin,
    interceptors: [readAgain, watchConnection, keepAlive, authorize],
    useBinaryFormat: true,
  });
  return {
    apps: createClient(AppService, transport),
    daemon: createClient(DaemonService, transport),
    events: createClient(EventService, transport),
    monitor: createClient(MonitorService, transport),
    sessions: createClient(SessionService, transport),
    client: (service) => createClient(service, transport),
    upload: createUpload(credential, loseConnection),
    dropReads,
    loseConnection,
  };
}

async function* checkedStream<T>(
  messages: AsyncIterable<T>,
  check: (error: unknown) => void,
): AsyncGenerator<T> {
  try {
    yield* messages;
  } catch (error) {
    check(error);
    throw error;
  }
}

export function isUnauthenticated(error: unknown): boolean {
  return ConnectError.from(error).code === Code.Unauthenticated;
}

export function isNotFound(error: unknown): boolean {
  return ConnectError.from(error).code === Code.NotFound;
}

export function isCanceled(error: unknown): boolean {
  return ConnectError.from(error).code === Code.Canceled;
}

/** The payload of a daemon's error. */
export function payloadOf(error: unknown): ErrorDetail["payload"] | undefined {
  return detailOf(error)?.payload;
}

/** Whether the daemon sent this error; other errors come from the connection. */
export function isDaemonError(error: unknown): boolean {
  return reasonOf(error) !== undefined;
}

/** Every error of the daemon, and no other error, has this detail. */
function detailOf(error: unknown): ErrorDetail | undefined {
  return error instanceof ConnectError ? error.findDetails(ErrorDetailSchema)[0] : undefined;
}

/** The reason of the daemon's error; undefined for other errors. */
export function reasonOf(error: unknown): string | undefined {
  return detailOf(error)?.reason;
}

/** The error message with the next step. */
export function describeError(error: unknown): string {
  if (error instanceof UserFacingError) return error.message;
  if (error instanceof ConnectError && error.cause instanceof UserFacingError) return error.cause.message;
  if (!(error instanceof ConnectError))
    return error instanceof TypeError ? texts.unreachable : texts.unexpected;
  const reason = reasonOf(error);
  // Errors without a reason do not come from the daemon.
  if (reason === undefined)
    return error.code === Code.Unknown ? texts.unreachable : sentence(error.rawMessage);
  return [sentence(error.rawMessage), texts.advice[reason] ?? ""].join(" ").trim();
}
