import { SvcError } from "../errors.ts";

/** @param service of a compose project, whose file sets whether it has a terminal */
export function noTerminal(id: string, service = ""): SvcError {
  const [what, why, option] =
    service === ""
      ? [`app "${id}"`, "the package sets no `console`", ""]
      : [
          `service "${service}" of app "${id}"`,
          "the compose file does not set `tty: true`",
          ` --service ${service}`,
        ];
  return new SvcError(
    "not_possible",
    `${what} has no terminal: ${why}; open a shell instead: svc shell ${id}${option}`,
  );
}
