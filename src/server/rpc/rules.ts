/**
 * Validates requests against the contract: `google.api.field_behavior = REQUIRED` and `(svc.v1.rules)`. Each
 * message type is compiled at its first use. Reports one violation per field, by its path of JSON names.
 */
import {
  ScalarType,
  getOption,
  hasOption,
  type DescField,
  type DescMessage,
  type Message,
} from "@bufbuild/protobuf";
import { FeatureSet_FieldPresence } from "@bufbuild/protobuf/wkt";
import { FieldBehavior, field_behavior } from "../../../gen/google/api/field_behavior_pb.ts";
import { outputOnlyFields } from "../../../gen/svc/v1/fields.ts";
import { rules as rulesOption, type FieldRules } from "../../../gen/svc/v1/rules_pb.ts";
import { invalidRequest, type FieldViolation } from "../../errors.ts";
import { compileValueCheck, type ValueCheck } from "./value-rules.ts";

/** Maximum violations per response, so that a request cannot make it huge. */
const maxViolations = 64;

/** Deeper nesting is rejected; protobuf-es has no limit for binary messages. */
const maxDepth = 32;

type Fields = Readonly<Record<string, unknown>>;

class Report {
  readonly violations: FieldViolation[] = [];
  /**
   * Whether to build field names. The first check omits them, because building them takes longer than
   * checking.
   */
  readonly hasNames: boolean;
  readonly #most: number;
  constructor(hasNames: boolean) {
    this.hasNames = hasNames;
    this.#most = hasNames ? maxViolations : 1;
  }
  get full(): boolean {
    return this.violations.length >= this.#most;
  }
  add(field: string, description: string): void {
    this.#add({ field, description });
  }
  addMissing(field: string): void {
    this.#add({ field, description: "is required", missing: true });
  }
  #add(violation: FieldViolation): void {
    if (!this.full) this.violations.push(violation);
  }
}

/** Checks one field of the message at `path` (empty, or ending with a dot). */
type FieldCheck = (message: Fields, path: string, depth: number, report: Report) => void;

/** Checks one present value. */
type NestedCheck = (value: unknown, path: string, depth: number, report: Report) => void;

export class Validator {
  readonly #compiled = new Map<DescMessage, readonly FieldCheck[]>();

  /** @throws SvcError `invalid_request` with one violation per invalid field */
  check(type: DescMessage, message: Message): void {
    const first = new Report(false);
    this.#checkMessage(type, message, "", 0, first);
    if (first.violations.length === 0) return;
    const report = new Report(true);
    this.#checkMessage(type, message, "", 0, report);
    throw invalidRequest(report.violations);
  }

  #checksOf(type: DescMessage): readonly FieldCheck[] {
    let checks = this.#compiled.get(type);
    if (checks === undefined) {
      checks = type.fields.flatMap((field) => this.#compileField(field) ?? []);
      this.#compiled.set(type, checks);
    }
    return checks;
  }

  #checkMessage(type: DescMessage, message: unknown, path: string, depth: number, report: Report): void {
    if (depth > maxDepth) {
      report.add(path, `must not nest deeper than ${maxDepth} messages`);
      return;
    }
    const prefix = path === "" || !report.hasNames ? "" : `${path}.`;
    for (const check of this.#checksOf(type)) {
      if (report.full) return;
      check(message as Fields, prefix, depth, report);
    }
  }

  /** Undefined for a field without rules. */
  #compileField(field: DescField): FieldCheck | undefined {
    // Output-only fields of requests are ignored.
    if (outputOnlyFields.has(`${field.parent.typeName}.${field.name}`)) return undefined;
    const rules = hasOption(field, rulesOption) ? getOption(field, rulesOption) : undefined;
    const isRequired = getOption(field, field_behavior).includes(FieldBehavior.REQUIRED);
    const content = this.#compileContent(field, rules);
    if (!isRequired && content === undefined) return undefined;

    const read = reader(field);
    const isAbsent = rules?.mayBeEmpty === true ? isEmptyText : absence(field, isRequired);
    return (message, prefix, depth, report) => {
      const value = read(message);
      if (!isAbsent(value)) content?.(value, report.hasNames ? prefix + field.jsonName : "", depth, report);
      else if (isRequired) report.addMissing(prefix + field.jsonName);
    };
  }

  #compileContent(field: DescField, rules: FieldRules | undefined): NestedCheck | undefined {
    const isSecret = field.proto.options?.debugRedact === true;
    if (field.fieldKind === "message") return this.#compileNested(field.message);
    if (field.fieldKind === "list") return compileList(rules, this.#compileItem(field, rules, isSecret));
    if (field.fieldKind !== "map") return asNested(compileValueCheck(rules, isSecret));
    const key = asNested(compileValueCheck(rules?.keys, false));
    return compileMap(rules, key, this.#compileItem(field, rules, isSecret));
  }

  #compileItem(
    { message }: DescField,
    rules: FieldRules | undefined,
    isSecret: boolean,
  ): NestedCheck | undefined {
    return message === undefined
      ? asNested(compileValueCheck(rules?.items, isSecret))
      : this.#compileNested(message);
  }

  /** Well-known types have no rules. */
  #compileNested(type: DescMessage): NestedCheck | undefined {
    if (type.typeName.startsWith("google.protobuf.")) return undefined;
    return (value, path, depth, report) => this.#checkMessage(type, value, path, depth + 1, report);
  }
}

function reader(field: DescField): (message: Fields) => unknown {
  const { oneof, localName } = field;
  if (oneof === undefined) return (message) => message[localName];
  return (message) => {
    const chosen = message[oneof.localName] as { case?: string; value?: unknown };
    return chosen.case === localName ? chosen.value : undefined;
  };
}

/**
 * Whether a value counts as absent. A required number or bool without presence is never absent: its zero is a
 * value.
 */
function absence(field: DescField, isRequired: boolean): (value: unknown) => boolean {
  if (field.fieldKind === "list") return (value) => (value as unknown[]).length === 0;
  if (field.fieldKind === "map") return (value) => isEmpty(value as object);
  const hasPresence =
    field.fieldKind === "message" ||
    field.oneof !== undefined ||
    field.presence !== FeatureSet_FieldPresence.IMPLICIT;
  if (hasPresence) return (value) => value === undefined;
  const isText =
    field.fieldKind === "scalar" && (field.scalar === ScalarType.STRING || field.scalar === ScalarType.BYTES);
  if (isText) return (value) => (value as string | Uint8Array).length === 0;
  return isRequired ? () => false : (value) => value === 0 || value === 0n || value === false;
}

function isEmptyText(value: unknown): boolean {
  return value === undefined || value === "";
}

function isEmpty(map: object): boolean {
  for (const key in map) if (Object.hasOwn(map, key)) return false;
  return true;
}

function asNested(check: ValueCheck | undefined): NestedCheck | undefined {
  if (check === undefined) return undefined;
  return (value, path, _depth, report) => {
    const description = check(value);
    if (description !== undefined) report.add(path, description);
  };
}

/** Undefined if the number of entries is allowed. */
function countViolation(count: number, rules: FieldRules | undefined): string | undefined {
  if (rules?.minItems !== undefined && count < rules.minItems) {
    return `must have at least ${rules.minItems} entries, not ${count}`;
  }
  if (rules?.maxItems !== undefined && count > rules.maxItems) {
    return `must have at most ${rules.maxItems} entries, not ${count}`;
  }
  return undefined;
}

function compileList(
  rules: FieldRules | undefined,
  element: NestedCheck | undefined,
): NestedCheck | undefined {
  if (rules === undefined && element === undefined) return undefined;
  return (value, path, depth, report) => {
    const list = value as readonly unknown[];
    const violation = countViolation(list.length, rules);
    if (violation !== undefined) {
      report.add(path, violation);
      return;
    }
    if (element === undefined) return;
    for (const [index, entry] of list.entries()) {
      if (report.full) return;
      element(entry, report.hasNames ? `${path}[${index}]` : "", depth, report);
    }
  };
}

function compileMap(
  rules: FieldRules | undefined,
  key: NestedCheck | undefined,
  element: NestedCheck | undefined,
): NestedCheck | undefined {
  if (rules === undefined && element === undefined) return undefined;
  return (value, path, depth, report) => {
    const entries = Object.entries(value as Record<string, unknown>);
    const violation = countViolation(entries.length, rules);
    if (violation !== undefined) {
      report.add(path, violation);
      return;
    }
    for (const [name, entry] of entries) {
      if (report.full) return;
      const entryPath = `${path}[${JSON.stringify(name.slice(0, 64))}]`;
      const before = report.violations.length;
      key?.(name, entryPath, depth, report);
      if (report.violations.length === before) element?.(entry, entryPath, depth, report);
    }
  };
}
