/** Names of the contract's methods on the command line. */
import type { DescMethod } from "@bufbuild/protobuf";
import { services } from "../../gen/svc/v1/services.ts";
import { nearWord } from "../lib/near-word.ts";

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

/** The name of the only method with this name in any service, or of a method with a similar name. */
export function meantMethod(name: string): string | undefined {
  const methods = services.flatMap((service) => service.methods);
  const named = methods.filter((method) => method.name.toLowerCase() === name.toLowerCase());
  const [first] = named;
  return first !== undefined && named.length === 1
    ? methodName(first)
    : nearWord(name, methods.map(methodName));
}
