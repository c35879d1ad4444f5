// Loaded before the suite's origin server, which listens on every address of the machine and serves its own files.
const { Server } = require('node:net')

const listen = Server.prototype.listen
Server.prototype.listen = function (port) {
  return listen.call(this, Number(port), '127.0.0.1')
}
