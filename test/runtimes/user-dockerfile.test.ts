/** The allowed instructions in a regular user's Dockerfile, and the file that is built instead. */
import test from "ava";
import {
  requireNoTriggers,
  restrictDockerfile,
  withStageLabels,
} from "../../src/runtimes/docker/user-dockerfile.ts";

const rejected: [name: string, line: string][] = [
  ["a label of svc", "LABEL svc.app=victim"],
  ["a label of compose", 'LABEL a="b" com.docker.compose.project="svc-victim"'],
  ["a label of a swarm", "LABEL com.docker.swarm.service.id=1"],
  ["a label of a stack", "LABEL com.docker.stack.namespace=1"],
  ["the old form of a label", "LABEL svc.app victim"],
  ["a label in quotes", 'LABEL "svc.app"=victim'],
  ["a label in two pairs of quotes", "LABEL s''vc.app=victim"],
  ["a label with an escape", "LABEL sv\\c.app=victim"],
  ["a label on two lines", "LABEL a=b \\\n  svc.app=victim"],
  ["a label split between two lines", "LABEL a=b sv\\\nc.app=victim"],
  ["a label behind an escaped quote", 'LABEL a="\\" svc.app=victim b="'],
  ["a label behind a space of another kind", "LABEL a=b\u2003svc.app=victim"],
  ["a label behind a next line", "LABEL a=b\u0085svc.app=victim"],
  ["a label in small letters", "label svc.app=victim"],
  ["a variable in the name of a label", "LABEL ${NAME}=victim"],
  ["a variable in the name of a later label", "LABEL a=b s${NAME}=victim"],
  ["a variable in the old form", "LABEL $NAME victim"],
  ["a trigger", "ONBUILD RUN true"],
  ["a label in a trigger", "ONBUILD LABEL svc.app=victim"],
  ["a URL in a trigger", "ONBUILD ADD http://127.0.0.1/ /x"],
  ["a URL", "ADD http://127.0.0.1/x /x"],
  ["a URL as JSON", 'ADD ["http://127.0.0.1/x", "/x"]'],
  ["a URL behind a flag", "ADD --chown=1:1 https://127.0.0.1/x /x"],
  ["a repository", "ADD git@example.org:a/b.git /x"],
  ["an archive", "ADD rootfs.tar.xz /"],
  ["an archive as JSON", 'ADD ["a.tgz", "/"]'],
  ["a range of exposed ports above the bound", "EXPOSE 1-65535/tcp"],
  ["exposed ports above the bound on two lines", "EXPOSE 2000-2300\nEXPOSE 3000-3300/udp"],
  ["a variable as an exposed port", "ENV P=1-65535\nEXPOSE $P"],
  ["an exposed port in quotes", 'EXPOSE "1-6"5535'],
  ["exposed ports on continued lines", "expose 1-\\\n65535"],
  ["volumes above the bound", `VOLUME ${Array.from({ length: 65 }, (_, n) => `/v${n}`).join(" ")}`],
  [
    "volumes above the bound as JSON",
    `VOLUME ${JSON.stringify(Array.from({ length: 65 }, (_, n) => `/v${n}`))}`,
  ],
  ["ADD on two lines", "A\\\nDD a /b"],
];
for (const [name, line] of rejected) {
  test(`a user's Dockerfile is rejected with ${name}`, (t) => {
    const error = t.throws(() => restrictDockerfile(`FROM busybox:1\n${line}\n`));
    t.like(error, { reason: "denied" });
  });
}

for (const line of [
  "LABEL maintainer=me description='see svc.example.org for svc' \\\n  org.opencontainers.image.version=$VERSION",
  "LABEL com.docker.extension.api.version=1",
  "LABEL maintainer John Doe",
  "RUN echo LABEL svc.app=1",
  "EXPOSE 80 443/tcp 2000-2509/udp",
  'VOLUME ["/data", "/cache"]\nVOLUME /log $OTHER',
]) {
  test(`a user's Dockerfile may have ${line}`, (t) => {
    const text = `FROM busybox:1\n${line}\n`;
    t.is(restrictDockerfile(text), text);
  });
}

test("ADD is built as COPY, which downloads and unpacks nothing", (t) => {
  t.is(
    restrictDockerfile('FROM busybox:1\nADD --chown=1:1 a \\\n  b /c\n  add ["$X", "/d"]\nRUN echo ADD\n'),
    'FROM busybox:1\nCOPY --chown=1:1 a \\\n  b /c\n  COPY ["$X", "/d"]\nRUN echo ADD\n',
  );
});

test("each stage blanks the reserved labels of its base image", (t) => {
  const text = "ARG A=1\nFROM a:1 AS one\nRUN x\nFROM \\\n  b:2\nFROM one\n";
  const labels = new Map([
    [0, ["com.docker.compose.project", "maintainer"]],
    [1, ["svc.builder", 'svc.odd"=', "svc.app"]],
  ]);
  t.is(
    withStageLabels(text, labels, { name: "svc.builder", value: "7" }),
    'ARG A=1\nFROM a:1 AS one\nLABEL "com.docker.compose.project"="" "svc.builder"="7"\nRUN x\nFROM \\\n  b:2\nLABEL "svc.app"="" "svc.builder"="7"\nFROM one\nLABEL "svc.builder"="7"\n',
  );
});

test("a base image with ONBUILD is rejected", (t) => {
  t.like(
    t.throws(() => requireNoTriggers("a:1", ["RUN x"])),
    { reason: "denied" },
  );
  t.notThrows(() => requireNoTriggers("a:1", []));
});
