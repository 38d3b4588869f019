/** Writes YAML that other engines parse correctly. */
import { Document, visit } from "yaml";

/** Line breaks, or the start of a text, for parsers of YAML 1.1. */
const oddCharacters = /[\u0085\u2028\u2029\ufeff]/g;

/** Kubernetes and similar engines parse YAML 1.1 or parts of it, where `yes` is true and more characters are line breaks. */
export function yamlText(value: object): string {
  // Repeated values are written out, because users edit one of them.
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
