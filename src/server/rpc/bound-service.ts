/** Services with their handlers, and an index of their methods. */
import type { DescMethod, DescService } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import { methodPolicies, type MethodPolicy } from "../../../gen/svc/v1/methods.ts";
import { methodName } from "./access.ts";

import { SvcError } from "../../errors.ts";

/** A service of the contract with its handlers, created with {@link implement}. */
export interface BoundService {
  /** Full name, such as `svc.v1.AppService`. */
  readonly name: string;
  /** Decoded at first access, which may take milliseconds. */
  readonly service: DescService;
  /** Handlers by the method's local name; their types were checked by {@link implement}. */
  readonly impl: Readonly<Record<string, unknown>>;
  /** For a third-party service, whose methods have no svc options. */
  readonly policy?: ThirdPartyPolicy;
}

/** Access to the methods of a third-party service. */
export interface ThirdPartyPolicy extends MethodPolicy {
  /** Whether its methods are read-only, regardless of their options. */
  readonly isReadOnly: boolean;
  /** Whether callers need no identity. */
  readonly isPublic: boolean;
}

export const readOnlyForUsers: ThirdPartyPolicy = {
  access: "USER",
  capability: "",
  isReadOnly: true,
  isPublic: false,
};

export const publicPolicy: ThirdPartyPolicy = { ...readOnlyForUsers, isPublic: true };

/**
 * Binds handlers to their service. Every method must be present, if only as `unimplemented`. The service's
 * descriptors are decoded at first access: decoding all services takes as long as starting Node.
 * @param name its full name
 */
export function implement<S extends DescService>(
  name: string,
  service: () => S,
  impl: ServiceImpl<S>,
  policy?: ThirdPartyPolicy,
): BoundService {
  return {
    name,
    get service() {
      return service();
    },
    impl,
    ...(policy && { policy }),
  };
}

/** A handler without types. */
export type Handler = (input: unknown, context: HandlerContext) => unknown;

/** A method that can be called. */
export interface MethodEntry {
  readonly method: DescMethod;
  /** Full name. */
  readonly name: string;
  readonly access: MethodPolicy["access"];
  /** Not marked `NO_SIDE_EFFECTS`. */
  readonly isChanging: boolean;
  /** Callers need no identity. */
  readonly isPublic: boolean;
  readonly handler: Handler;
}

/** @throws Error if a method has no handler or no policy, so that no method is public by omission */
export function indexMethods(
  { name: serviceName, service, impl, policy: thirdPartyPolicy }: BoundService,
  policies: Readonly<Record<string, MethodPolicy>>,
): Map<DescMethod, MethodEntry> {
  if (service.typeName !== serviceName) throw new Error(`${service.typeName} is bound as ${serviceName}`);
  const entries = new Map<DescMethod, MethodEntry>();
  for (const method of service.methods) {
    const name = methodName(method);
    const policy = thirdPartyPolicy ?? policies[name];
    const handler = impl[method.localName];
    if (policy === undefined) throw new Error(`${name} has no access policy`);
    if (typeof handler !== "function") throw new Error(`${name} has no handler`);
    entries.set(method, {
      method,
      name,
      access: policy.access,
      isChanging:
        thirdPartyPolicy?.isReadOnly !== true &&
        method.idempotency !== MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS,
      isPublic: thirdPartyPolicy?.isPublic ?? false,
      handler: handler.bind(impl) as Handler,
    });
  }
  return entries;
}

/** The sorted capability strings of all methods that are not `unimplemented`. */
export function collectCapabilities(
  services: readonly BoundService[],
  policies: Readonly<Record<string, MethodPolicy>> = methodPolicies,
): string[] {
  const impls = new Map(services.map(({ name, impl }) => [name, impl]));
  const found = new Set<string>();
  for (const [fullName, { capability }] of Object.entries(policies)) {
    if (capability === "") continue;
    const [service = "", method = ""] = fullName.split("/");
    const handler = impls.get(service)?.[localName(method)];
    if (handler !== undefined && handler !== unimplemented) found.add(capability);
  }
  return [...found].sort();
}

/** The method's name in generated code. */
function localName(method: string): string {
  return method.slice(0, 1).toLowerCase() + method.slice(1);
}

/**
 * Placeholder for a method that this version does not support: `listBackups: unimplemented`. The pipeline
 * returns `unimplemented` (REST 501, reason `not_implemented`) after identity, access and validation, and
 * omits the method from the capabilities.
 */
export function unimplemented(): never {
  throw new SvcError("not_implemented", "this daemon does not support the method");
}
