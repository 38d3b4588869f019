/** The methods of all services, by descriptor and by path. Those of a service that is bound for later are looked at with the first of them. */
import type { DescMethod } from "@bufbuild/protobuf";
import type { MethodPolicy } from "../../gen/svc/v1/methods.ts";
import { indexMethods, type BoundService, type MethodEntry } from "./bound-service.ts";

export class MethodIndex {
  readonly #policies: Readonly<Record<string, MethodPolicy>>;
  /** By full name. */
  readonly #forLater = new Map<string, BoundService>();
  readonly #entries = new Map<DescMethod, MethodEntry>();
  readonly #paths = new Map<string, DescMethod>();

  /** @throws as {@link indexMethods}, as do the others for what is bound for later */
  constructor(services: readonly BoundService[], policies: Readonly<Record<string, MethodPolicy>>) {
    this.#policies = policies;
    for (const service of services) {
      if (service.isForLater) this.#forLater.set(service.name, service);
      else this.#add(service);
    }
  }

  entryOf(method: DescMethod): MethodEntry | undefined {
    const known = this.#entries.get(method);
    if (known !== undefined || !this.#look(method.parent.typeName)) return known;
    return this.#entries.get(method);
  }

  /** The method of a Connect or gRPC path, such as `/svc.v1.AppService/ListApps`. */
  at(path: string): DescMethod | undefined {
    const known = this.#paths.get(path);
    if (known !== undefined || !this.#look(path.slice(1, path.indexOf("/", 1)))) return known;
    return this.#paths.get(path);
  }

  /** Whether there is more to find now. */
  #look(name: string): boolean {
    const service = this.#forLater.get(name);
    if (service === undefined) return false;
    this.#add(service);
    return this.#forLater.delete(name);
  }

  #add(service: BoundService): void {
    for (const [method, entry] of indexMethods(service, this.#policies)) {
      this.#entries.set(method, entry);
      this.#paths.set(`/${entry.name}`, method);
    }
  }
}
