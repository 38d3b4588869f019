/** Closed sets of values in the contract: string fields whose rules have `in`, or that hold error reasons. */
import { ScalarType, type DescField, type DescFile, type DescMessage } from "@bufbuild/protobuf";
import type { FieldRules } from "../../gen/svc/v1/rules_pb.ts";

/** The rules of a field that list its values. */
export type ValueRules = Pick<FieldRules, "in"> & Pick<Partial<FieldRules>, "items">;

export interface ValueList {
  /** Name of the constant list, such as `ErrorDetailReasons`. */
  readonly listName: string;
  /** Name of the union type, such as `ErrorDetailReason`. */
  readonly typeName: string;
  readonly values: readonly string[];
  /** Field that holds the values. */
  readonly field: DescField;
}

/**
 * The value lists of all messages in `files`, in the order of the contract.
 * @throws Error if two lists have the same name, a value is repeated, or `in` is on a field that is not a string
 */
export function collectValueLists(
  files: Iterable<DescFile>,
  rulesOf: (field: DescField) => ValueRules | undefined,
): ValueList[] {
  const lists = new Map<string, ValueList>();
  for (const file of files) {
    for (const message of withNested(file.messages)) {
      for (const field of message.fields) {
        const list = valueListOf(field, rulesOf(field));
        if (list === undefined) continue;
        for (const name of [list.listName, list.typeName]) {
          const other = lists.get(name);
          if (other !== undefined)
            throw new Error(
              `${name} would name the values of both ${other.field.toString()} and ${field.toString()}`,
            );
          lists.set(name, list);
        }
      }
    }
  }
  return [...new Set(lists.values())];
}

function valueListOf(field: DescField, rules: ValueRules | undefined): ValueList | undefined {
  const ofItems = field.fieldKind === "list" || field.fieldKind === "map";
  const values = (ofItems ? rules?.items?.in : rules?.in) ?? [];
  if (values.length === 0) return undefined;
  if (field.scalar !== ScalarType.STRING)
    throw new Error(`${field.toString()}: the rule "in" needs a string field`);
  const repeated = values.find((value, index) => values.indexOf(value) !== index);
  if (repeated !== undefined) throw new Error(`${field.toString()}: the value "${repeated}" is repeated`);

  const name =
    pascalCase(field.parent.typeName.slice(field.parent.file.proto.package.length + 1)) +
    pascalCase(field.name);
  return ofItems
    ? { listName: name, typeName: singular(name), values, field }
    : { listName: plural(name), typeName: name, values, field };
}

/** Messages, and the messages nested in them. */
export function* withNested(messages: Iterable<DescMessage>): Iterable<DescMessage> {
  for (const message of messages) {
    yield message;
    yield* withNested(message.nestedMessages);
  }
}

function pascalCase(name: string): string {
  return name.replace(/(?:^|[._])([a-z])/gi, (_, letter: string) => letter.toUpperCase()).replaceAll(".", "");
}

function plural(name: string): string {
  if (/[^aeiou]y$/.test(name)) return `${name.slice(0, -1)}ies`;
  return /(?:s|x|z|ch|sh)$/.test(name) ? `${name}es` : `${name}s`;
}

function singular(name: string): string {
  if (name.endsWith("ies")) return `${name.slice(0, -3)}y`;
  return name.endsWith("s") ? name.slice(0, -1) : `${name}Item`;
}
