/**
 * The methods of all services, by descriptor and by path. A service is indexed at the first access to one of
 * its methods.
 */
import type { DescMethod } from "@bufbuild/protobuf";
import type { MethodPolicy } from "../../../gen/svc/v1/methods.ts";
import { indexMethods, type BoundService, type MethodEntry } from "./bound-service.ts";

export class MethodIndex {
  readonly #policies: Readonly<Record<string, MethodPolicy>>;
  /** Services that are not indexed yet, by full name. */
  readonly #unindexed: Map<string, BoundService>;
  readonly #entries = new Map<DescMethod, MethodEntry>();
  readonly #paths = new Map<string, DescMethod>();

  constructor(services: readonly BoundService[], policies: Readonly<Record<string, MethodPolicy>>) {
    this.#policies = policies;
    this.#unindexed = new Map(services.map((service) => [service.name, service]));
  }

  /** @throws as {@link indexMethods}; so does {@link at} */
  entryOf(method: DescMethod): MethodEntry | undefined {
    const known = this.#entries.get(method);
    if (known !== undefined || !this.#addService(method.parent.typeName)) return known;
    return this.#entries.get(method);
  }

  /** The method of a Connect or gRPC path, such as `/svc.v1.AppService/ListApps`. */
  at(path: string): DescMethod | undefined {
    const known = this.#paths.get(path);
    if (known !== undefined || !this.#addService(path.slice(1, path.indexOf("/", 1)))) return known;
    return this.#paths.get(path);
  }

  /** Indexes a service. @returns whether it was not indexed before */
  #addService(name: string): boolean {
    const service = this.#unindexed.get(name);
    if (service === undefined) return false;
    for (const [method, entry] of indexMethods(service, this.#policies)) {
      this.#entries.set(method, entry);
      this.#paths.set(`/${entry.name}`, method);
    }
    return this.#unindexed.delete(name);
  }
}
