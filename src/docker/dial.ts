import type Dockerode from "dockerode";

type DialRequest = Parameters<Dockerode["modem"]["dial"]>[0];

/** Asks the engine past dockerode's own methods, where none of them asks it like this. */
export function dial(docker: Dockerode, request: DialRequest): Promise<unknown> {
  const { promise, resolve, reject } = Promise.withResolvers<unknown>();
  docker.modem.dial(request, (error, answer) => {
    if (error === null) resolve(answer);
    else reject(error);
  });
  return promise;
}
