/** YAML that engines read as it is meant. */
import { Document, visit } from "yaml";

/** What ends a line, or begins a text, to readers of YAML 1.1. */
const oddCharacters = /[\u0085\u2028\u2029\ufeff]/g;

/** They read YAML 1.1 or parts of it: `yes` is true there, and a line ends in more ways. */
export function yamlText(value: object): string {
  // What is said twice is written twice: people change one of both.
  const document = new Document(value, { compat: "yaml-1.1", aliasDuplicateObjects: false });
  visit(document, {
    Scalar: (_, node) => {
      if (typeof node.value === "string" && node.value.search(oddCharacters) !== -1)
        node.type = "QUOTE_DOUBLE";
    },
  });
  return document
    .toString()
    .replaceAll(oddCharacters, (odd) => `\\u${odd.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
