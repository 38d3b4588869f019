/** Rewords Commander's usage errors: first the option or argument, then what it must be. */

const forms: readonly (readonly [RegExp, string])[] = [
  [
    /^command-argument value '(.*)' is invalid for argument '(.*)'\. Allowed choices are (.*)\./s,
    'unknown $2 "$1"; choose one of: $3',
  ],
  [/^command-argument value '(.*)' is invalid for argument '(.*)'\. It (must .*)\./s, '<$2> $3, got "$1"'],
  [
    /^option '(?:-., )?(--[\w-]+).*?' argument '(.*)' is invalid\. Allowed choices are (.*)\./s,
    '$1 must be one of $3; got "$2"',
  ],
  [/^option '(?:-., )?(--[\w-]+).*?' argument '(.*)' is invalid\. It (must .*)\./s, '$1 $3; got "$2"'],
  [/^option '(?:-., )?(--[\w-]+).*?' argument missing/, "$1 needs a value"],
  [
    /^option '(?:-., )?(--[\w-]+).*?' cannot be used with option '(?:-., )?(--[\w-]+).*?'/,
    "$1 cannot be used with $2",
  ],
  [
    /^missing required argument 'archive'/,
    "missing argument <archive>: latest, or the name of an archive from svc backup ls",
  ],
  [/^missing required argument '(.*?)'/, "missing argument <$1>"],
  [/^required option '(?:-., )?(--[\w-]+ <[\w-]+>)' not specified/, "$1 is required"],
  [/^unknown option '(.*?)'/, "unknown option $1"],
  [/^unknown command '(.*?)'/, 'unknown command "$1"'],
  [
    /^too many arguments.*?\. Expected (\d+) arguments? but got (\d+): (.*)\./s,
    "too many arguments: expected $1, got $2 ($3)",
  ],
];

/** @param text Commander's message, possibly with a suggestion on a second line */
export function usageMessage(text: string): string {
  const message = text.replace(/^error: /, "");
  const form = forms.find(([pattern]) => pattern.test(message));
  return (form === undefined ? message : message.replace(...form)).replace(
    /\n\(Did you mean (?:one of )?(.*)\?\)/,
    "\nDid you mean: $1",
  );
}
