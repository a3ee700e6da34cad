join-title = Va a ponerse en la fila
join-lead = Se entra por orden de llegada.
join-button = Ponerse en la fila
scheduled-title = Todavía no está abierto
scheduled-lead = Su lugar queda guardado. Se entra por orden a partir de la apertura.
draw-title = El sorteo aún no se ha celebrado
draw-lead = En la apertura, un sorteo da a cada visitante que se haya unido hasta entonces un puesto al azar. Quienes se unan después quedan detrás.
drawn-lead = Un sorteo ha dado un puesto al azar a cada visitante que se unió antes de la apertura. La entrada sigue ese orden.
late-lead = El sorteo ha terminado. Quienes se unan ahora quedan detrás, por orden de llegada.
waiting-title = Está en la fila
waiting-lead = Se entra por orden de llegada.
almost-title = Ya casi
almost-lead = Usted es el siguiente. Mantenga esta página abierta.
paused-title = La fila está en pausa
paused-lead = El organizador ha detenido la entrada por el momento. Usted conserva su lugar.
admitted-title = Es su turno
admitted-lead = Entre antes de que se acabe el tiempo.
admitted-button = Entrar
full-title = La fila está llena
full-lead = Vuelva a intentarlo en un momento.
expired-title = Su lugar ha terminado
expired-lead = No hubo contacto con esta página durante demasiado tiempo, o su visita ha terminado.
left-title = Ha salido de la fila
left-lead = Su lugar ha pasado a la siguiente persona.
over-title = Esta fila está cerrada
over-lead = El organizador la ha cerrado. Ya no entra nadie.
lost-title = Sin conexión
lost-lead = Se perdió la conexión. Usted conserva su lugar; esta página lo intenta de nuevo sola.
offer-title = Ocupe su lugar en este dispositivo
offer-lead = Este enlace trae un lugar de la fila a este dispositivo, una sola vez. En el dispositivo que lo tiene ahora, termina.
offer-button = Ocupar el lugar
moved-title = Su lugar ha pasado a otro dispositivo
moved-lead = Otro dispositivo lo ha tomado con el enlace y continúa con él. Esta página y su enlace ya no llevan a él.
cookies-title = Permita las cookies
cookies-lead = Su lugar se guarda en una cookie, y su navegador no la guardó. Permita las cookies de este sitio y vuelva a ponerse en la fila.
rejoin-button = Volver a la fila
work-busy = Su navegador resuelve una pequeña tarea que frena a los bots.
work-wait = Una pequeña tarea frena a los bots. Sin JavaScript, espere { $count } s y pulse el botón.
ahead = { $count ->
    [0] No hay nadie delante de usted
    [one] { $count } persona delante de usted
   *[other] { $count } personas delante de usted
}
entrants = { $count ->
    [one] { $count } persona participa en el sorteo
   *[other] { $count } personas participan en el sorteo
}
draw-link = Comprobar el sorteo
receipt-link = Guardar el recibo
wait-label = Espera prevista
wait-soon = menos de un minuto
wait-minutes = { $to ->
    [one] alrededor de { $to } minuto
   *[other] { $from }–{ $to } minutos
}
wait-hours = { $to ->
    [one] alrededor de { $to } hora
   *[other] { $from }–{ $to } horas
}
wait-unknown = aún no se sabe
number-label = Su número
progress-label = Avance desde que llegó
opens-label = Abre en
ends-label = Tiempo restante
updated-label = Última actualización
kept = Conserva su lugar si recarga o cierra esta página.
check-button = Comprobar ahora
auto-button = Actualizar automáticamente
leave-button = Salir de la fila
move-title = Continuar en otro dispositivo
move-lead = Abra este enlace en el otro dispositivo y ocupe allí el lugar. Sirve una sola vez: no lo muestre a nadie.
soldout-title = Agotado
soldout-lead = Se han entregado todos.
early-title = Aún no está abierto
early-lead = Podrá obtenerlo desde la apertura. Esta página se abre sola.
claim-title = Ya puede obtenerlo
claim-lead = Obtenga el suyo ahora. Uno por persona.
claim-button = Obtener ahora
claimed-title = Es suyo
claimed-lead = Anote este código. Esta página lo vuelve a mostrar en este navegador.
ended-title = Ha terminado
ended-lead = Aquí ya no se entrega nada.
serial-label = Su número de serie
code-label = Su código
remaining = { $count ->
    [0] no queda ninguno
    [one] queda { $count }
    [many] quedan { $count }
   *[other] quedan { $count }
}
language-label = Idioma
