/**
 * Options of methods and fields in the contract. They are read through the given descriptors instead of generated code, so that
 * the generator does not depend on its own output.
 */
import {
  getOption,
  hasOption,
  type DescExtension,
  type DescField,
  type DescFile,
  type DescMethod,
} from "@bufbuild/protobuf";
import type { HttpRule } from "../../gen/google/api/http_pb.ts";
import type { FieldRules, ReasonRule } from "../../gen/svc/v1/rules_pb.ts";

/** Access level of a method, without the prefix of `svc.v1.AccessLevel`. */
export type Access = "USER" | "ROOT" | "PRIMARY" | "PEER" | "CODE";

export interface ContractOptions {
  /** `google.api.http`; undefined for a method without a route. */
  httpRule(method: DescMethod): HttpRule | undefined;
  /** `svc.v1.access`; undefined when it is missing or unspecified. */
  access(method: DescMethod): Access | undefined;
  /** `svc.v1.capability`; empty for the base. */
  capability(method: DescMethod): string;
  /** `svc.v1.rules`. */
  rules(field: DescField): FieldRules | undefined;
  /** `svc.v1.reasons`; empty for a field that does not hold a reason. */
  reasons(field: DescField): readonly ReasonRule[];
  /** Whether `google.api.field_behavior` has REQUIRED. */
  isRequired(field: DescField): boolean;
  /** Whether `google.api.field_behavior` has OUTPUT_ONLY; requests ignore such a field. */
  isOutputOnly(field: DescField): boolean;
}

/** Numbers of `google.api.FieldBehavior`. */
const behaviors = { required: 2, outputOnly: 3 } as const;
const accessLevels: readonly (Access | undefined)[] = [undefined, "USER", "ROOT", "PRIMARY", "PEER", "CODE"];

/** Reads options with the definitions in `files`. An option without a definition is never set. */
export function readContractOptions(files: Iterable<DescFile>): ContractOptions {
  const extensions = new Map<string, DescExtension>();
  for (const file of files) {
    for (const extension of file.extensions) extensions.set(extension.typeName, extension);
  }
  const option = (element: DescMethod | DescField, name: string): unknown => {
    const extension = extensions.get(name);
    return extension && hasOption(element, extension) ? getOption(element, extension) : undefined;
  };
  const behaves = (field: DescField, behavior: number): boolean =>
    ((option(field, "google.api.field_behavior") as number[] | undefined) ?? []).includes(behavior);
  return {
    httpRule: (method) => option(method, "google.api.http") as HttpRule | undefined,
    access: (method) => accessLevels[(option(method, "svc.v1.access") as number | undefined) ?? 0],
    capability: (method) => (option(method, "svc.v1.capability") as string | undefined) ?? "",
    rules: (field) => option(field, "svc.v1.rules") as FieldRules | undefined,
    reasons: (field) => (option(field, "svc.v1.reasons") as ReasonRule[] | undefined) ?? [],
    isRequired: (field) => behaves(field, behaviors.required),
    isOutputOnly: (field) => behaves(field, behaviors.outputOnly),
  };
}
