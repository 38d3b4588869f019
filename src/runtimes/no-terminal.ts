import { SvcError } from "../errors.ts";

/** @param service of a compose project, which says itself whether it has one */
export function noTerminal(id: string, service = ""): SvcError {
  const [what, why, option] =
    service === ""
      ? [`app "${id}"`, "its package says no `console`", ""]
      : [
          `service "${service}" of app "${id}"`,
          "its compose file says no `tty: true`",
          ` --service ${service}`,
        ];
  return new SvcError(
    "not_possible",
    `${what} has no terminal: ${why}; open a shell instead: svc app shell ${id}${option}`,
  );
}
