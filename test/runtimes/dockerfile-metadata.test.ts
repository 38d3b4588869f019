/** How long the descriptions of the images may get that a regular user's Dockerfile creates. */
import test from "ava";
import { requireBoundedMetadata } from "../../src/runtimes/docker/dockerfile-metadata.ts";

const kib = 1024;
const long = "a".repeat(kib);
const lines = (count: number, line: (index: number) => string): string =>
  Array.from({ length: count }, (_, index) => line(index)).join("\n");

const base = { environment: [`BASE=${"b".repeat(8 * kib)}`], descriptionBytes: 10 * kib };
const args = { GIVEN: "g".repeat(8 * kib) };

const rejected: [name: string, text: string][] = [
  ["a variable that doubles", `ENV A=${long}\n${lines(16, () => "ENV A=$A$A")}`],
  ["a variable in braces that doubles", `ENV A=${long}\n${lines(16, () => "ENV A=${A}${A:-$A}")}`],
  ["a variable in the old form that doubles", `ENV A ${long}\n${lines(16, () => "ENV A $A $A")}`],
  ["a quoted variable that doubles", `ENV A=${long}\n${lines(16, () => 'ENV A="$A B=$A"')}`],
  ["two variables that double in turn", `ENV A=${long}\n${lines(10, () => "ENV B=$A$A A=$A$A\nENV A=$B$B")}`],
  ["an argument that doubles", `ARG A=${long}\n${lines(16, () => "ARG A=$A$A")}`],
  ["a variable with a quoted name", `ENV A=${long}\n${lines(16, () => 'ENV "A"=$A$A')}`],
  ["a variable with an escaped name", `ENV A=${long}\n${lines(16, () => "ENV \\A=$A$A")}`],
  ["a variable whose name is in another one", `ENV N=A A=${long}\n${lines(16, () => "ENV $N=$A$A")}`],
  ["a variable with a number as its name", `ENV 1=${long}\n${lines(16, () => "ENV 1=$1$1")}`],
  ["a variable with letters beyond ASCII", `ENV é=${long}\n${lines(16, () => "ENV é=$é$é")}`],
  ["text that is replaced in a variable", `ENV A=${long}\nLABEL a=\${A/a/${long}}`],
  ["many labels of one variable", `ENV A=${long}\nLABEL ${lines(200, (n) => `l${n}=$A \\`)}\n x=1`],
  ["a variable of the base image, often", `LABEL ${lines(20, (n) => `l${n}=$BASE \\`)}\n x=1`],
  ["an argument that the build sets, often", `ARG GIVEN\nLABEL ${lines(20, (n) => `l${n}=$GIVEN \\`)}\n x=1`],
  ["commands that repeat long arguments", `ARG GIVEN\n${lines(20, (n) => `RUN echo ${n}`)}`],
  ["paths of a long variable", `ENV A=${long}\n${lines(150, () => "COPY a $A")}`],
  ["many instructions", lines(257, (n) => `ENV A=${n}`)],
  ["many steps on long labels", `LABEL a=${long.repeat(60)}\n${lines(80, (n) => `ENV A=${n}`)}`],
];
for (const [name, text] of rejected) {
  test(`a user's Dockerfile is rejected with ${name}`, (t) => {
    const error = t.throws(() => requireBoundedMetadata(`FROM base:1\n${text}\n`, args, [base]));
    t.like(error, { reason: "denied" });
  });
}

const accepted: [name: string, text: string][] = [
  ["a path that grows", lines(60, (n) => `ENV PATH=/opt/${n}/bin:$PATH`)],
  ["variables that extend each other", lines(60, (n) => `ENV A=/a/${n} B=$A/b C=$B/c`)],
  ["a long script", `RUN ${lines(500, (n) => `echo "$A$B$C" >> /log-${n} && \\`)}\n true`],
  [
    "commands that use variables of the shell",
    lines(200, () => 'RUN for f in $(ls); do echo "$f $1 ${f%.c}"; done'),
  ],
  ["a default with a path", "WORKDIR ${HOME:-/usr/local/app}"],
  ["many labels", lines(60, (n) => `LABEL org.example.label-${n}="some text of $VERSION"`)],
];
for (const [name, text] of accepted) {
  test(`a user's Dockerfile is accepted with ${name}`, (t) => {
    const plain = { environment: ["PATH=/usr/local/bin:/usr/bin:/bin"], descriptionBytes: 3 * kib };
    t.notThrows(() =>
      requireBoundedMetadata(`FROM base:1\nARG VERSION=1\n${text}\n`, { VERSION: "2" }, [plain]),
    );
  });
}
