/**
 * Long methods: each call is an operation, which others can follow and cancel. With `detach` the call returns the operation,
 * and the work continues without the caller.
 */
import { create, toJson, type DescMessage, type Message, type MessageInitShape } from "@bufbuild/protobuf";
import type { HandlerContext } from "@connectrpc/connect";
import { ErrorDetailSchema } from "../../../gen/svc/v1/error_pb.ts";
import { OperationSchema } from "../../../gen/svc/v1/operation_pb.ts";
import type { OperationKind } from "../../../gen/svc/v1/values.ts";
import type { WorkOptions } from "../../work/progress.ts";
import { notFound } from "../../errors.ts";
import type { JsonObject } from "../../lib/json.ts";
import type { OperationFailure } from "../../operations/operation-record.ts";
import type {
  OperationRegistry,
  OperationWork,
  StartedOperation,
} from "../../operations/operation-registry.ts";
import { methodName } from "../rpc/access.ts";
import { auditTarget, type AuditRecord } from "../rpc/audit.ts";
import { errorDetailOf } from "../rpc/connect/connect-errors.ts";
import { shownError } from "../rpc/error-mapping.ts";
import { retainRequest } from "../rpc/request-memory.ts";
import { isBound } from "../rpc/running-calls.ts";
import { shareName, requestIdKey, userOf, type UserContext } from "../rpc/user-context.ts";
import { operationMessage } from "./operation-message.ts";
import { progressEvents, type ProgressEvent } from "./progress-events.ts";

export interface LongMethodsOptions {
  operations: OperationRegistry;
  /** The owner of an app; undefined for one that the caller may not see. */
  ownerOf: (appId: string, user: UserContext) => number | undefined;
  userName: (uid: number) => Promise<string>;
  /** Records the outcome of detached work; the call itself is recorded when it returns. */
  audit: (record: AuditRecord) => void;
  /** Converts a message to REST JSON. */
  json: (schema: DescMessage, message: Message) => JsonObject;
}

export interface LongRequest extends Message {
  readonly detach: boolean;
}

type OperationInit = MessageInitShape<typeof OperationSchema>;
export interface LongMethod<Request extends LongRequest, Output extends DescMessage, Last extends string> {
  kind: OperationKind;
  output: Output;
  /** The case of the stream's last event. */
  last: Last;
  /** The app that the work changes. Default: none, and the operation belongs to the caller. */
  appOf?: (request: Request) => string;
  /** Whether the app may have been removed, with archives left; the operation then belongs to the caller. */
  mayBeGone?: boolean;
  /** The user who may see the work on an app. Default: the app's owner. */
  ownedBy?: (appOwnerUid: number, user: UserContext) => number;
  /** Further fields of the response to `detach`. Default: none. */
  pending?: (request: Request, user: UserContext) => Promise<MessageInitShape<Output>>;
  work: (request: Request, user: UserContext, work: OperationWork) => Promise<MessageInitShape<Output>>;
}

/** Work on the host rather than on an app. */
const onHost: ReadonlySet<OperationKind> = new Set([
  "prune",
  "adopt",
  "move_files",
  "copy_files",
  "create_archive",
  "extract_archive",
]);

/** Larger results are not stored. */
const maxResultBytes = 64 * 1024;
/** Limit for an error's payload, which may contain the texts of several licenses. */
const maxDetailBytes = 1024 * 1024;

export class LongMethods {
  readonly #options: LongMethodsOptions;

  constructor(options: LongMethodsOptions) {
    this.#options = options;
  }

  /** The handlers of a long method and of its streaming sibling. */
  define<Request extends LongRequest, Output extends DescMessage, const Last extends string>(
    method: LongMethod<Request, Output, Last>,
  ) {
    type Result = MessageInitShape<Output>;
    return {
      call: async (request: Request, context: HandlerContext): Promise<Result> => {
        const { id, finished, stored } = this.#start(method, request, context);
        if (!request.detach) return finished;
        await stored;
        const user = userOf(context);
        const detached = create(OperationSchema, await this.#message(id, user));
        return { ...(await method.pending?.(request, user)), detached } as unknown as Result;
      },
      stream: (
        request: Request,
        context: HandlerContext,
      ): AsyncGenerator<ProgressEvent | { event: { case: Last; value: Result } } | DetachedEvent> =>
        request.detach
          ? this.#detachedEvent(method, request, context)
          : progressEvents(
              async (onProgress) => this.#start(method, request, context, onProgress).finished,
              method.last,
            ),
    };
  }

  async *#detachedEvent<Request extends LongRequest, Output extends DescMessage, Last extends string>(
    method: LongMethod<Request, Output, Last>,
    request: Request,
    context: HandlerContext,
  ): AsyncGenerator<DetachedEvent> {
    const { id, stored } = this.#start(method, request, context);
    await stored;
    yield { event: { case: "detached", value: await this.#message(id, userOf(context)) } };
  }

  #start<Request extends LongRequest, Output extends DescMessage, Last extends string>(
    method: LongMethod<Request, Output, Last>,
    request: Request,
    context: HandlerContext,
    onProgress?: WorkOptions["onProgress"],
  ): StartedOperation<MessageInitShape<Output>> {
    const { operations } = this.#options;
    const user = userOf(context);
    const appId = method.appOf?.(request) ?? "";
    const ownerUid = this.#ownerUid(method, appId, user);
    const requestId = context.values.get(requestIdKey);
    const startedMs = performance.now();
    const { signal } = context;
    const share = isBound(user) ? shareName(user) : undefined;
    const started = operations.run(
      { kind: method.kind, appId, ownerUid, callerUid: user.uid, detached: request.detach, share, signal },
      (work) =>
        method.work(request, user, {
          ...work,
          onProgress: (progress) => {
            work.onProgress?.(progress);
            onProgress?.(progress);
          },
        }),
      {
        result: (value) => this.#resultJson(method.output, value),
        failure: (thrown, workSignal) => failureOf(thrown, requestId, workSignal),
      },
    );
    if (request.detach) {
      const retained = retainRequest(context);
      const drop = (): void => retained?.[Symbol.dispose]();
      started.finished.then(drop, drop);
      this.#auditEnd(request, context, startedMs, started.finished);
    }
    return started;
  }

  #ownerUid(
    {
      kind,
      mayBeGone = false,
      ownedBy = (uid) => uid,
    }: Pick<LongMethod<LongRequest, DescMessage, string>, "kind" | "mayBeGone" | "ownedBy">,
    appId: string,
    user: UserContext,
  ): number {
    // The result lists objects of the host, even if root acts for another user.
    if (onHost.has(kind)) return user.uid;
    if (appId === "") return user.ownerUid;
    const appOwnerUid = this.#options.ownerOf(appId, user);
    if (appOwnerUid !== undefined) return ownedBy(appOwnerUid, user);
    if (!mayBeGone) throw notFound("app", appId);
    return user.ownerUid;
  }

  async #message(id: string, user: UserContext): Promise<OperationInit> {
    const { operations, userName } = this.#options;
    return operationMessage(operations.get(id, { uid: user.ownerUid, root: true }), userName);
  }

  #resultJson<Output extends DescMessage>(
    schema: Output,
    value: MessageInitShape<Output>,
  ): JsonObject | undefined {
    const json = this.#options.json(schema, create(schema, value));
    return sizeOf(json) <= maxResultBytes ? json : undefined;
  }

  /** Records the outcome of detached work in the audit log. */
  #auditEnd(request: Message, context: HandlerContext, startedMs: number, finished: Promise<unknown>): void {
    const common = {
      requestId: context.values.get(requestIdKey),
      method: methodName(context.method),
      protocolName: context.protocolName,
      user: userOf(context),
      target: auditTarget(request),
    };
    const durationMs = (): number => Math.round(performance.now() - startedMs);
    finished.then(
      () => this.#options.audit({ ...common, result: "ok", durationMs: durationMs() }),
      (thrown: unknown) => {
        const { code, reason } = shownError(thrown, common.requestId);
        this.#options.audit({ ...common, result: code, reason, durationMs: durationMs() });
      },
    );
  }
}

interface DetachedEvent {
  event: { case: "detached"; value: OperationInit };
}

function failureOf(thrown: unknown, requestId: string, signal: AbortSignal): OperationFailure {
  const error = shownError(thrown, requestId, signal);
  const detail = toJson(ErrorDetailSchema, errorDetailOf(error)) as JsonObject;
  const { message, code, reason } = error;
  return { message, code, detail: sizeOf(detail) <= maxDetailBytes ? detail : { reason } };
}

function sizeOf(json: JsonObject): number {
  return Buffer.byteLength(JSON.stringify(json));
}
