//! The receiving end, in a separate process: it reads requests and accepts them.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use astracer_benches::http;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::worlds::Protocol;

/// A running sink, killed on drop.
pub(crate) struct Process {
    child: Child,
    address: String,
}

impl Process {
    pub(crate) fn start(protocol: Protocol) -> Self {
        let own = std::env::current_exe().expect("this program");
        let mut child = Command::new(own)
            .args(["--sink", protocol.name()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("a sink");
        let mut address = String::new();
        let out = child.stdout.take().expect("the sink's output");
        BufReader::new(out).read_line(&mut address).expect("the sink's address");
        Process { child, address: address.trim().to_owned() }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The sink has nothing to finish.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs as the sink until the process is killed.
pub(crate) fn run(kind: &str) {
    if kind == Protocol::Http.name() { http() } else { grpc() }
}

fn http() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    println!("{}", listener.local_addr().expect("its address"));
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || serve(stream));
    }
}

/// Answers each request of a connection.
fn serve(stream: TcpStream) -> Option<()> {
    let mut stream = http::reader(stream);
    let mut body = Vec::new();
    loop {
        http::read_body(&mut stream, &mut body)?;
        stream.get_mut().write_all(http::OK).ok()?;
    }
}

struct Accepts;

#[tonic::async_trait]
impl TraceService for Accepts {
    async fn export(
        &self,
        _: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn grpc() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let incoming = TcpIncoming::bind(([127, 0, 0, 1], 0).into()).expect("a port");
        println!("{}", incoming.local_addr().expect("its address"));
        let service = TraceServiceServer::new(Accepts).max_decoding_message_size(64 << 20);
        Server::builder().serve_with_incoming(service, incoming).await.expect("a server");
    });
}
