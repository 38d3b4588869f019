/** The closed word sets of the contract: string fields whose rules have `in`, or that say reasons. */
import { ScalarType, type DescField, type DescFile, type DescMessage } from "@bufbuild/protobuf";
import type { FieldRules } from "../../gen/svc/v1/rules_pb.ts";

/** The rules of a field, as far as they are words. */
export type WordRules = Pick<FieldRules, "in"> & Pick<Partial<FieldRules>, "items">;

export interface WordList {
  /** Name of the constant list, such as `ErrorDetailReasons`. */
  readonly listName: string;
  /** Name of the union type, such as `ErrorDetailReason`. */
  readonly typeName: string;
  readonly words: readonly string[];
  /** The field that the words belong to. */
  readonly field: DescField;
}

/**
 * The word lists of all messages in `files`, in the order of the contract.
 * @throws Error when two lists get one name, a word is there twice, or `in` stands on a field that is no string.
 */
export function collectWordLists(
  files: Iterable<DescFile>,
  rulesOf: (field: DescField) => WordRules | undefined,
): WordList[] {
  const lists = new Map<string, WordList>();
  for (const file of files) {
    for (const message of withNested(file.messages)) {
      for (const field of message.fields) {
        const list = wordListOf(field, rulesOf(field));
        if (list === undefined) continue;
        for (const name of [list.listName, list.typeName]) {
          const other = lists.get(name);
          if (other !== undefined)
            throw new Error(
              `${name} would be the words of both ${other.field.toString()} and ${field.toString()}`,
            );
          lists.set(name, list);
        }
      }
    }
  }
  return [...new Set(lists.values())];
}

function wordListOf(field: DescField, rules: WordRules | undefined): WordList | undefined {
  const ofItems = field.fieldKind === "list" || field.fieldKind === "map";
  const words = (ofItems ? rules?.items?.in : rules?.in) ?? [];
  if (words.length === 0) return undefined;
  if (field.scalar !== ScalarType.STRING)
    throw new Error(`${field.toString()}: the rule "in" needs a string field`);
  const repeated = words.find((word, index) => words.indexOf(word) !== index);
  if (repeated !== undefined) throw new Error(`${field.toString()}: the word "${repeated}" is there twice`);

  const name =
    pascalCase(field.parent.typeName.slice(field.parent.file.proto.package.length + 1)) +
    pascalCase(field.name);
  return ofItems
    ? { listName: name, typeName: singular(name), words, field }
    : { listName: plural(name), typeName: name, words, field };
}

/** Messages with those inside them. */
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
