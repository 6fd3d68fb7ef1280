// Visitors' files on their way to the server: as they are, so that nothing has to unpack them there.

/**
 * The server with the functions that read files, if it says where it reads them.
 * @param {Server} server
 * @param {string | undefined} address
 * @returns {Server}
 */
export function withFiles(server, address) {
  if (!address) return server;
  const read = async (/** @type {string} */ form, /** @type {Blob} */ file) => {
    const answer = await fetch(new URL(address + form, document.baseURI), {
      method: "POST", body: file, headers: { "content-type": "application/octet-stream" },
    });
    return answer.json(); // also a refusal says why, as its error
  };
  return Object.assign(Object.create(server), {
    opened: (/** @type {Blob} */ file) => read("trace", file),
    take_away: read,
    find_prompts: (/** @type {Blob} */ file) => read("prompts", file),
  });
}
