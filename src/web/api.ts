/** The daemon's clients with the token of this tab, and what their errors say to a person. */
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
import { sentence } from "./plain-text.ts";
import { texts } from "./texts.ts";
import { ToldError } from "./told-error.ts";
import { createUpload, type Upload } from "./upload.ts";

const againMs = 300;

export interface Api {
  readonly apps: Client<typeof AppService>;
  readonly daemon: Client<typeof DaemonService>;
  readonly events: Client<typeof EventService>;
  readonly monitor: Client<typeof MonitorService>;
  readonly sessions: Client<typeof SessionService>;
  /** Of a service that is known only to what is loaded later. */
  readonly client: <S extends DescService>(service: S) => Client<S>;
  readonly upload: Upload;
  /** Breaks off the reads that are under way: what hangs would hold the few connections of a browser for ever. */
  readonly dropReads: () => void;
}

/** @param token kept in this object's closure alone: never in an address or a storage */
export function createApi(token: string): Api {
  const authorize: Interceptor = (next) => (request) => {
    request.header.set("authorization", `Bearer ${token}`);
    return next(request);
  };
  let reads = new AbortController();
  /**
   * A network that changes, as when a container comes, breaks calls off that did not get to the daemon: reads go once more. What
   * became of a change nobody knows then.
   */
  const readAgain: Interceptor = (next) => async (request) => {
    if (request.stream) return next(request);
    const isRead = request.method.idempotency === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS;
    const once = (): ReturnType<typeof next> =>
      next(isRead ? { ...request, signal: AbortSignal.any([request.signal, reads.signal]) } : request);
    try {
      return await once();
    } catch (error) {
      if (request.signal.aborted || isOfDaemon(error)) throw error;
      if (!isRead) throw new ToldError(texts.unanswered, { cause: error });
      await new Promise((resolve) => setTimeout(resolve, againMs));
      return once();
    }
  };
  const transport = createConnectTransport({
    baseUrl: location.origin,
    interceptors: [readAgain, authorize],
    useBinaryFormat: true,
  });
  return {
    apps: createClient(AppService, transport),
    daemon: createClient(DaemonService, transport),
    events: createClient(EventService, transport),
    monitor: createClient(MonitorService, transport),
    sessions: createClient(SessionService, transport),
    client: (service) => createClient(service, transport),
    upload: createUpload(token),
    dropReads: () => {
      reads.abort(new TypeError("there is no sign of life"));
      reads = new AbortController();
    },
  };
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

/** What an error of the daemon carries besides its sentence. */
export function payloadOf(error: unknown): ErrorDetail["payload"] | undefined {
  return detailOf(error)?.payload;
}

/** The daemon has answered; anything else broke off on the way. */
export function isOfDaemon(error: unknown): boolean {
  return reasonOf(error) !== undefined;
}

/** What every error of the daemon has, and no other. */
function detailOf(error: unknown): ErrorDetail | undefined {
  return error instanceof ConnectError ? error.findDetails(ErrorDetailSchema)[0] : undefined;
}

/** The word for why the daemon refused; undefined where it did not come to that. */
export function reasonOf(error: unknown): string | undefined {
  return detailOf(error)?.reason;
}

/** What went wrong, and what to do next. */
export function describeError(error: unknown): string {
  if (error instanceof ToldError) return error.message;
  if (error instanceof ConnectError && error.cause instanceof ToldError) return error.cause.message;
  if (!(error instanceof ConnectError))
    return error instanceof TypeError ? texts.unreachable : texts.unexpected;
  const reason = reasonOf(error);
  // What has no reason of ours did not come from the daemon.
  if (reason === undefined)
    return error.code === Code.Unknown ? texts.unreachable : sentence(error.rawMessage);
  return [sentence(error.rawMessage), texts.advice[reason] ?? ""].join(" ").trim();
}
