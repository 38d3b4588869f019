/** Services with their handlers, and the methods they make up. */
import type { DescMethod, DescService } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import { methodPolicies, type MethodPolicy } from "../../gen/svc/v1/methods.ts";
import { methodName } from "./access.ts";
import { unimplemented } from "./unimplemented.ts";

/** A service of the contract with the handlers that implement it. Make it with {@link implement}. */
export interface BoundService {
  /** Full name, such as `svc.v1.AppService`. */
  readonly name: string;
  /** Decoded with the first look, which may take milliseconds. */
  readonly service: DescService;
  /** Handlers by the method's local name; the types were checked when they were bound. */
  readonly impl: Readonly<Record<string, unknown>>;
  /** For a service outside of our contract, whose methods have no options of ours. */
  readonly policy?: ForeignPolicy;
}

/** Who may call the methods of a service outside of our contract. */
export interface ForeignPolicy extends MethodPolicy {
  /** Whether its methods only read, whatever their options say. */
  readonly isReadOnly: boolean;
  /** Whether they are called without an identity. */
  readonly isPublic: boolean;
}

export const readOnlyForUsers: ForeignPolicy = {
  access: "USER",
  capability: "",
  isReadOnly: true,
  isPublic: false,
};

export const openToEverybody: ForeignPolicy = { ...readOnlyForUsers, isPublic: true };

/**
 * Ties handlers to their service; every method must be there, if only as `unimplemented`. There is no look at the service before it
 * is asked for: in the bundle its descriptors are decoded then, which takes as long for all services as Node takes to start.
 * @param name its full name
 */
export function implement<S extends DescService>(
  name: string,
  service: () => S,
  impl: ServiceImpl<S>,
  policy?: ForeignPolicy,
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

/** A handler with its types taken off. */
export type Handler = (input: unknown, context: HandlerContext) => unknown;

/** A method, ready to be called. */
export interface MethodEntry {
  readonly method: DescMethod;
  /** Full name. */
  readonly name: string;
  readonly access: MethodPolicy["access"];
  /** Not marked `NO_SIDE_EFFECTS`. */
  readonly isChanging: boolean;
  /** Called without an identity. */
  readonly isPublic: boolean;
  readonly handler: Handler;
}

/** @throws Error when a method has no handler or no policy: nothing is open by omission. */
export function indexMethods(
  { name: serviceName, service, impl, policy: foreign }: BoundService,
  policies: Readonly<Record<string, MethodPolicy>>,
): Map<DescMethod, MethodEntry> {
  if (service.typeName !== serviceName) throw new Error(`${service.typeName} is bound as ${serviceName}`);
  const entries = new Map<DescMethod, MethodEntry>();
  for (const method of service.methods) {
    const name = methodName(method);
    const policy = foreign ?? policies[name];
    const handler = impl[method.localName];
    if (policy === undefined) throw new Error(`${name} has no access policy`);
    if (typeof handler !== "function") throw new Error(`${name} has no handler`);
    entries.set(method, {
      method,
      name,
      access: policy.access,
      isChanging:
        foreign?.isReadOnly !== true && method.idempotency !== MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS,
      isPublic: foreign?.isPublic ?? false,
      handler: handler.bind(impl) as Handler,
    });
  }
  return entries;
}

/** The capability strings that a set of services offers, sorted: those of the methods that are not `unimplemented` (S 9). */
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

/** As the generated code calls a method. */
function localName(method: string): string {
  return method.slice(0, 1).toLowerCase() + method.slice(1);
}
