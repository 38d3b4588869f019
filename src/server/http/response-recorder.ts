/**
 * Records responses that do not come from a call of the pipeline: early rejections, and pages. So every
 * response is counted, and attempted changes appear in the audit log.
 */
import type { DescMethod } from "@bufbuild/protobuf";
import type { SvcError } from "../../errors.ts";
import { mediaType } from "../../lib/http-messages.ts";
import { pathProblem } from "../rest/path.ts";
import type { Router } from "../rest/router.ts";
import type { Pipeline } from "../rpc/pipeline.ts";
import { anonymous, type UserContext } from "../rpc/user-context.ts";
import { callerOf, pathOf, type CanonicalPath, type HttpRequest } from "../rpc/http-request.ts";
import { addressOf, type Origin } from "./request-source.ts";

export interface ResponseRecorderOptions {
  readonly pipeline: Pick<Pipeline, "methodAt" | "recordResponse">;
  readonly router: Router;
}

/** Properties of such a response. */
export interface Answer {
  /** Why the request was rejected; absent for a page. */
  readonly error?: SvcError;
  /** For a request without an identity, like `origin`. */
  readonly requestId?: string;
  readonly origin?: Origin | undefined;
}

export class ResponseRecorder {
  readonly #options: ResponseRecorderOptions;

  constructor(options: ResponseRecorderOptions) {
    this.#options = options;
  }

  /** Records the response, unless the request or its call is already recorded. */
  record(request: HttpRequest, { error, requestId = "", origin }: Answer): void {
    const { pipeline } = this.#options;
    const caller = callerOf(request);
    if (caller?.isRecorded === true) return;
    if (caller !== undefined) caller.isRecorded = true;
    const procedure = pipeline.methodAt(pathOf(request));
    const recorded = {
      user: caller?.user ?? userAt(origin),
      requestId: caller?.requestId ?? requestId,
      protocolName: protocolOf(request, procedure !== undefined),
    };
    pipeline.recordResponse(procedure ?? this.#methodOfRoute(request), recorded, error);
  }

  #methodOfRoute(request: HttpRequest): DescMethod | undefined {
    const path = callerOf(request)?.path ?? uncheckedPathOf(request);
    if (path === undefined) return undefined;
    const match = this.#options.router.match(request.method ?? "", path);
    return match.kind === "route" ? match.route.method : undefined;
  }
}

/** The path of a request that was rejected before it had a caller; undefined if it is not canonical. */
function uncheckedPathOf(request: HttpRequest): CanonicalPath | undefined {
  const path = pathOf(request);
  return pathProblem(path, { escapedSlash: "allow" }) === undefined ? (path as CanonicalPath) : undefined;
}

/** A caller without an identity: the uid on the socket, the address over TCP. */
function userAt(origin: Origin | undefined): UserContext {
  if (origin?.kind !== "peer") return { ...anonymous, address: addressOf(origin) };
  const { uid } = origin;
  return { uid, root: false, kind: "peer", ownerUid: uid, peerUid: uid };
}

function protocolOf(request: HttpRequest, isProcedure: boolean): string {
  const type = mediaType(request);
  if (type.startsWith("application/grpc-web")) return "grpc-web";
  if (type.startsWith("application/grpc")) return "grpc";
  return isProcedure ? "connect" : "rest";
}
