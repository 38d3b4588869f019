/** Names of the contract's methods on the command line. */
import type { DescMethod } from "@bufbuild/protobuf";
import { services } from "../../gen/svc/v1/services.ts";

/** `AppService.ListApps`: the name of a method on the command line. */
export function methodName(method: DescMethod): string {
  return `${method.parent.name}.${method.name}`;
}

/** @param name `AppService.ListApps`, or the full `svc.v1.AppService/ListApps`, in any case */
export function findMethod(name: string): DescMethod | undefined {
  const lowerName = name
    .toLowerCase()
    .replace(/^\/?svc\.v1\./, "")
    .replace("/", ".");
  return services
    .flatMap((service) => service.methods)
    .find((method) => methodName(method).toLowerCase() === lowerName);
}
