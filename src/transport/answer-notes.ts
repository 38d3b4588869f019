/**
 * Notes the answers that no call of the pipeline stands behind: refusals before there is one, and pages. So every answer is
 * counted, and nobody tries to change something unseen.
 */
import type { DescMethod } from "@bufbuild/protobuf";
import type { SvcError } from "../errors.ts";
import { mediaType } from "../lib/http-messages.ts";
import { pathProblem } from "../rest/path.ts";
import type { Route } from "../rest/route.ts";
import { Router } from "../rest/router.ts";
import type { Pipeline } from "../rpc/pipeline.ts";
import { anonymous, type UserContext } from "../rpc/user-context.ts";
import { callerOf, pathOf, type HttpRequest } from "./http.ts";
import { addressOf, type Origin } from "./identity.ts";

export interface AnswerNotesOptions {
  readonly pipeline: Pick<Pipeline, "methodAt" | "noteAnswer">;
  readonly routes: Iterable<Route>;
}

/** What is known of an answer. */
export interface Answer {
  /** Why it was refused; absent for a page. */
  readonly error?: SvcError;
  /** For a request that came to no identity; so is `origin`. */
  readonly requestId?: string;
  readonly origin?: Origin | undefined;
}

export class AnswerNotes {
  readonly #options: AnswerNotesOptions;
  #router: Router | undefined;

  constructor(options: AnswerNotesOptions) {
    this.#options = options;
  }

  /** Notes the answer to a request, unless it or a call has been noted for it. */
  note(request: HttpRequest, { error, requestId = "", origin }: Answer): void {
    const { pipeline } = this.#options;
    const caller = callerOf(request);
    if (caller?.isNoted === true) return;
    if (caller !== undefined) caller.isNoted = true;
    const procedure = pipeline.methodAt(pathOf(request));
    const noted = {
      user: caller?.user ?? userAt(origin),
      requestId: caller?.requestId ?? requestId,
      protocolName: protocolOf(request, procedure !== undefined),
    };
    pipeline.noteAnswer(procedure ?? this.#methodOfRoute(request), noted, error);
  }

  #methodOfRoute(request: HttpRequest): DescMethod | undefined {
    const path = pathOf(request);
    if (pathProblem(path, { escapedSlash: "allow" }) !== undefined) return undefined;
    this.#router ??= new Router(this.#options.routes);
    const match = this.#router.match(request.method ?? "", path);
    return match.kind === "route" ? match.route.method : undefined;
  }
}

/** What is known without an identity: on the socket the kernel's word, over TCP an address. */
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
