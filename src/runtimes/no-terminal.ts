import { SvcError } from "../errors.ts";

export function noTerminal(id: string): SvcError {
  return new SvcError(
    "not_possible",
    `app "${id}" has no terminal: its package says no \`console\`; open a shell instead: svc app shell ${id}`,
  );
}
